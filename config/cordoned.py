"""`cordoned.log.dirs` (KIP-1066): the log directories that get no new partitions, while those that are in them stay and are served.

Source: AbstractKafkaConfig.cordonedLogDirs, KafkaConfig.validateCordonedLogDirs.
"""

from __future__ import annotations

from collections.abc import Sequence

CORDONED_LOG_DIRS = "cordoned.log.dirs"
ALL = "*"


def find_fault(names: Sequence[str], log_dirs: Sequence[str]) -> str | None:
    """Why `names` cannot be the value on a broker with these `log_dirs`, in Kafka's words; None where it can. As in Kafka a directory
    has to be written as in log.dirs."""
    if ALL in names:
        return None if len(names) == 1 else f"When {CORDONED_LOG_DIRS} is set to {ALL}, it must not contain other values"
    missing = [name for name in names if name not in log_dirs]
    if not missing:
        return None
    return f"All entries in {CORDONED_LOG_DIRS} must be present in log.dirs or log.dir. Missing entries : {', '.join(missing)}"


def cordoned_directories(names: Sequence[str], log_dirs: Sequence[str]) -> list[str]:
    """Those of `log_dirs` that the value cordons."""
    return [log_dir for log_dir in log_dirs if ALL in names or log_dir in names]
