"""Which files of log directories a command reads, and what is in them, by the declarations of storage/formats.py.

A path is a log directory (a broker's log.dirs), a partition's directory in it, or a file. Files of partitions that are deleted, stray or on
their way to another directory are left out, unless they are named.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import construct

from barnabas.cli.errors import NotUnderstoodError, RefusedError
from protocol.errors import DecodeError
from protocol.records import HEADER_SIZE, LOG_OVERHEAD, MAGIC_V2
from storage import formats
from storage.files import LOG_SUFFIX, META_PROPERTIES, TopicPartition, find_topic_partition

HEADER_CONTENT_MIN = HEADER_SIZE - LOG_OVERHEAD
SEGMENT_NAME = re.compile(r"\d{20}\.log")
METADATA_TOPIC = "__cluster_metadata"


class LogFile(NamedTuple):
    """`of` is the partition whose directory it is in; a topic without a name where that is no partition's."""

    path: Path
    of: TopicPartition

    @property
    def base_offset(self) -> int:
        """The number in its name; 0 where there is none."""
        digits = self.path.name.partition(".")[0]
        return int(digits) if digits.isdigit() else 0


class Batch(NamedTuple):
    """`header` as formats.RECORD_BATCH_HEADER parses it; `data` is the whole batch."""

    position: int
    header: Any
    data: memoryview


def find_partitions(paths: Iterable[str]) -> list[Path]:
    """The partitions' directories, by name. Raises NotUnderstoodError for what is no directory of either kind."""
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.is_dir():
            raise NotUnderstoodError(f"{path} is no directory")
        if find_topic_partition(path.name) and _has_segments(path):
            found.append(path)
            continue
        inside = sorted(each for each in path.iterdir() if each.is_dir() and find_topic_partition(each.name))
        if not inside and not (path / META_PROPERTIES).exists():
            raise NotUnderstoodError(f"{path} is neither a log directory nor a partition's")
        found += inside
    return found


def find_files(paths: Iterable[str], names: Sequence[str]) -> list[LogFile]:
    """The files with one of these names or suffixes, in the order of the paths, then by name. Raises NotUnderstoodError."""
    found = []
    for path in map(Path, paths):
        if path.is_dir():
            folders = [path, *find_partitions([str(path)])] if find_topic_partition(path.name) is None else [path]
            found += [each for folder in folders for each in sorted(folder.iterdir()) if each.is_file() and _has(each, names)]
        elif not path.exists():
            raise NotUnderstoodError(f"{path} is not there")
        elif not _has(path, names):
            raise NotUnderstoodError(f"{path} is none of {', '.join(names)}")
        else:
            found.append(path)
    return [LogFile(each, find_topic_partition(each.absolute().parent.name) or TopicPartition("", 0)) for each in found]


def batches(file: LogFile) -> Iterator[Batch]:
    """The whole batches. Returns behind the last of them, and at zeros, with which Apache Kafka preallocates; raises RefusedError for what
    is no batch."""
    data = _map(file.path)
    position = 0
    while len(data) - position >= HEADER_SIZE:
        header = formats.RECORD_BATCH_HEADER.parse(data[position : position + HEADER_SIZE])
        size = header.batch_length + LOG_OVERHEAD
        if header.magic != MAGIC_V2 or header.batch_length < HEADER_CONTENT_MIN:
            if any(data[position : position + HEADER_SIZE]):
                raise RefusedError(f"{file.path} is damaged at byte {position}, where no batch of format {MAGIC_V2} begins")
            return
        if size > len(data) - position:
            return
        yield Batch(position, header, data[position : position + size])
        position += size


def parse(file: LogFile, declaration: construct.Construct) -> Any:
    """The whole file. Raises RefusedError."""
    try:
        return declaration.parse(file.path.read_bytes())
    except (construct.ConstructError, DecodeError, ValueError, UnicodeDecodeError) as e:
        raise RefusedError(f"{file.path} is damaged: {' '.join(str(e).split())}") from e


def entries(file: LogFile, declaration: construct.Construct) -> Iterator[Any]:
    """Of an index. Those of a running broker of Apache Kafka end with zeros, which only the first entry may be. Raises RefusedError."""
    content, size = file.path.read_bytes(), declaration.sizeof()
    for position in range(0, len(content), size):
        packed = content[position : position + size]
        if position and not any(packed):
            return
        if len(packed) < size:
            raise RefusedError(f"{file.path} is damaged: the entry at byte {position} is cut")
        yield declaration.parse(packed)


def _map(path: Path) -> memoryview:
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _has(path: Path, names: Sequence[str]) -> bool:
    if path.suffix == LOG_SUFFIX and not SEGMENT_NAME.fullmatch(path.name):
        return False
    return path.name in names or path.suffix in names


def _has_segments(path: Path) -> bool:
    return any(path.glob("*.log")) or (path / "partition.metadata").exists()
