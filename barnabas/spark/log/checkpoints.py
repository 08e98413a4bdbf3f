"""The checkpoint files of a log directory: an offset for each partition (OffsetCheckpointFile)."""

from __future__ import annotations

from pathlib import Path

HIGH_WATERMARKS, LOG_STARTS, CLEANED = "replication-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"


def read_checkpoint(path: Path) -> dict[tuple[str, int], int]:
    """Offsets by topic and partition: a line with the version 0, one with the number of lines, then `topic partition offset`. Nothing where
    there is no file."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    offsets = {}
    for line in lines[2:]:
        topic, partition, offset = line.split()
        offsets[topic, int(partition)] = int(offset)
    return offsets
