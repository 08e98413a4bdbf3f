"""Kafka's checkpoint files: small text tables replaced as a whole.

Format (CheckpointFile): a version line `0`, a line with the number of entries, then one entry a line, its fields separated by
single spaces. A file whose count does not match its lines is refused, as Kafka refuses it. A missing or empty file is an empty
table. The offset checkpoints of a log directory have `<topic> <partition> <offset>` lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from storage.disk import SYSTEM_DISK, Disk
from storage.errors import CorruptFileError
from storage.files import TopicPartition, read_text_file, replace_file

CHECKPOINT_VERSION = 0

T = TypeVar("T")


def read_offset_checkpoint(path: Path, disk: Disk = SYSTEM_DISK) -> dict[tuple[str, int], int]:
    """Returns the offsets by partition; CorruptFileError when the file is not a whole, well-formed checkpoint."""
    return dict(read_checkpoint(path, _parse_offset_line, disk))


def write_offset_checkpoint(
    path: Path, offsets: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int], disk: Disk = SYSTEM_DISK
) -> None:
    """Replaces the file durably with these offsets. It may block for an fsync: call it off the loop."""
    write_checkpoint(path, [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()], disk=disk)


def read_checkpoint(path: Path, parse: Callable[[list[str]], T], disk: Disk = SYSTEM_DISK) -> list[T]:
    """Returns each entry as `parse(fields)` gives it; a ValueError of `parse` becomes a CorruptFileError."""
    text = read_text_file(path, disk)
    if not text:
        return []
    lines = text.splitlines()
    try:
        version, count = int(lines[0]), int(lines[1])
        if version != CHECKPOINT_VERSION:
            raise ValueError(f"unknown version {version}")
        if count != len(lines) - 2:
            raise ValueError(f"{count} entries announced, {len(lines) - 2} found")
        return [parse(line.split(" ")) for line in lines[2:]]
    except (ValueError, IndexError) as error:
        raise CorruptFileError(f"malformed checkpoint {path}: {error}", path=path) from error


def encode_checkpoint(entries: Iterable[str]) -> bytes:
    """Returns a checkpoint file's content, ready to be written off the loop."""
    lines = list(entries)
    return "".join(f"{line}\n" for line in (str(CHECKPOINT_VERSION), str(len(lines)), *lines)).encode()


def write_checkpoint(path: Path, entries: Iterable[str], *, fsync: bool = True, disk: Disk = SYSTEM_DISK) -> None:
    replace_file(path, encode_checkpoint(entries), fsync=fsync, disk=disk)


def _parse_offset_line(fields: list[str]) -> tuple[TopicPartition, int]:
    topic, partition, offset = fields
    return TopicPartition(topic, int(partition)), int(offset)
