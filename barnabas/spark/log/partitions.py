"""What is in log directories: partitions, their bounds and their segments.

Source: LogManager, UnifiedLog, OffsetCheckpointFile, LogFileUtils.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ..errors import OptionError
from .checkpoints import HIGH_WATERMARKS, LOG_STARTS, read_checkpoint
from .options import LogOptions
from .transactions import first_unstable_offset

PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d+)")
"""The name of a partition's directory. One that is deleted, stray or on its way to another disk has a suffix: topic-0.<uuid>-delete."""
SUFFIXED = re.compile(r".*\.[0-9a-f]{32}-(delete|stray|future)")
SEGMENT = re.compile(r"(\d{20})\.log")
_TIME_ENTRY = struct.Struct(">qi")


class Segment(NamedTuple):
    """A file, read by one task. `start` and `end` (exclusive) are the offsets of it that count; None: to its end."""

    path: Path
    topic: str
    partition: int
    start: int
    end: int | None
    is_last: bool


class PartitionDirectory(NamedTuple):
    """A directory of a partition's files."""

    path: Path
    topic: str
    partition: int


def find_segments(options: LogOptions) -> list[Segment]:
    """The segments of all chosen partitions that may have rows. OptionError for a directory that is no log directory, and for a topic that
    is in none."""
    found: list[Segment] = []
    for directory in find_partitions(options):
        starts, ends = read_checkpoint(directory.path.parent / LOG_STARTS), read_checkpoint(directory.path.parent / HIGH_WATERMARKS)
        name = directory.topic, directory.partition
        found += _segments(options, directory.path, name, starts.get(name, 0), None if options.reads_to_log_end else ends.get(name, 0))
    return found


def find_partitions(options: LogOptions) -> list[PartitionDirectory]:
    """The chosen partitions. Raises OptionError, as `find_segments` does."""
    seen: dict[tuple[str, int], Path] = {}
    for directory in options.directories:
        if not directory.is_dir():
            raise OptionError(f"{directory} is no directory: it has to be there on the driver and on every worker")
        for path in sorted(each for each in directory.iterdir() if each.is_dir()):
            match = PARTITION.fullmatch(path.name)
            if match is None or SUFFIXED.fullmatch(path.name) or not options.chooses(match["topic"]):
                continue
            name = match["topic"], int(match["partition"])
            if name in seen:
                raise OptionError(
                    f"{path} and {seen[name]} are replicas of the same partition: read the directories of one broker at a time"
                )
            seen[name] = path
    if missing := options.topics - {topic for topic, _ in seen}:
        raise OptionError(f"topic {min(missing)} is in none of {', '.join(map(str, options.directories))}")
    return [PartitionDirectory(path, *name) for name, path in seen.items()]


def _segments(options: LogOptions, path: Path, name: tuple[str, int], start: int, end: int | None) -> Iterable[Segment]:
    paths = sorted(each for each in path.iterdir() if SEGMENT.fullmatch(each.name))
    bases = [int(each.stem) for each in paths]
    if not options.reads_uncommitted:
        unstable = first_unstable_offset(path, paths, end)
        end = unstable if end is None else end if unstable is None else min(end, unstable)
    for number, (segment, base) in enumerate(zip(paths, bases, strict=True)):
        following = bases[number + 1] if number + 1 < len(bases) else None
        if (end is not None and base >= end) or (following is not None and following <= start):
            continue
        if options.starting_ms is not None and following is not None and _largest_timestamp(segment) < options.starting_ms:
            continue
        yield Segment(segment, *name, start, end, is_last=following is None)


def _largest_timestamp(segment: Path) -> int:
    """By the time index of a segment that is no longer written: its last entry has the largest timestamp of the segment. A large number if
    there is no such entry."""
    try:
        index = segment.with_suffix(".timeindex").read_bytes()
    except OSError:
        return 1 << 62
    entries = [_TIME_ENTRY.unpack_from(index, at) for at in range(0, len(index) - _TIME_ENTRY.size + 1, _TIME_ENTRY.size)]
    return max((int(timestamp) for timestamp, _ in entries), default=0) or 1 << 62
