"""The options of `format("barnabas-log")`, checked before a file is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ..errors import OptionError
from ..options import number, truth

KNOWN = (
    "path", "subscribe", "subscribePattern", "includeHeaders", "startingTimestamp", "endingTimestamp", "readTo", "kafka.isolation.level",
    "audit",
)  # fmt: skip
HIGH_WATERMARK, LOG_END = "highWatermark", "logEnd"
METADATA_LOG = "__cluster_metadata"
"""Its records are the controllers'. It is read if it is named."""


class LogOptions(NamedTuple):
    """`starting_ms` is inclusive, `ending_ms` exclusive. `topics` is empty and `pattern` None for all topics."""

    directories: tuple[Path, ...]
    topics: frozenset[str]
    pattern: re.Pattern[str] | None
    has_headers: bool
    starting_ms: int | None
    ending_ms: int | None
    reads_to_log_end: bool
    reads_uncommitted: bool
    is_audit: bool
    """Findings instead of rows (audit.py)."""

    def chooses(self, topic: str) -> bool:
        """Whether the topic is read."""
        if self.pattern is not None:
            return self.pattern.fullmatch(topic) is not None
        return topic in self.topics if self.topics else topic != METADATA_LOG


def read_options(texts: Mapping[str, str]) -> LogOptions:
    """OptionError names the option that is missing, unknown or wrong."""
    known = {key.lower(): key for key in KNOWN}
    if unknown := [key for key in texts if key.lower() not in known]:
        raise OptionError(f"unknown option {unknown[0]!r}: there are {', '.join(KNOWN)}")
    options = {known[key.lower()]: text for key, text in texts.items()}
    paths = [path.strip() for path in options.get("path", "").split(",") if path.strip()]
    if not paths:
        raise OptionError('no log directory is named: .load("/var/lib/kafka/data"), or several with commas between, as in log.dirs')
    if "subscribe" in options and "subscribePattern" in options:
        raise OptionError("set one of the options subscribe and subscribePattern")
    try:
        pattern = re.compile(options["subscribePattern"]) if "subscribePattern" in options else None
    except re.error as error:
        raise OptionError(f"subscribePattern is {options['subscribePattern']!r}: {error}") from error
    read_to = options.get("readTo", HIGH_WATERMARK)
    if read_to.lower() not in (HIGH_WATERMARK.lower(), LOG_END.lower()):
        raise OptionError(f"readTo is {read_to!r}: it is {HIGH_WATERMARK} or {LOG_END}")
    isolation = options.get("kafka.isolation.level", "read_committed").lower()
    if isolation not in ("read_committed", "read_uncommitted"):
        raise OptionError(f"kafka.isolation.level is {isolation!r}: it is read_committed or read_uncommitted")
    return LogOptions(
        directories=tuple(Path(path.removeprefix("file://")) for path in paths),
        topics=frozenset(filter(None, (name.strip() for name in options.get("subscribe", "").split(",")))),
        pattern=pattern,
        has_headers=truth(options, "includeHeaders", default=False),
        starting_ms=number(options, "startingTimestamp", 0),
        ending_ms=number(options, "endingTimestamp", 0),
        reads_to_log_end=read_to.lower() == LOG_END.lower(),
        reads_uncommitted=isolation == "read_uncommitted",
        is_audit=truth(options, "audit", default=False),
    )
