"""Keeps data that recovery removes from a log: its files are moved to a folder inside the partition's directory.

`<partition>/set-aside.<n>/` keeps the files under their own names, so that kafka-dump-log reads them, and moving them back undoes it. The
folder is not taken for a part of the log: LogLoader, like this broker, reads only plain files. It stays until the operator removes it or
the partition is deleted. Owner: recovery, before the log is in use.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from storage.disk import PRIVATE_FILE, SYSTEM_DISK, Disk
from storage.errors import StorageError, storage_errors
from storage.files import rename, sync_directory, write_fully
from storage.segment import LogSegment

logger = logging.getLogger(__name__)

SET_ASIDE_PREFIX = "set-aside."
COPY_BYTES = 4 * 1024 * 1024


def set_aside(directory: Path, segments: Sequence[LogSegment], disk: Disk = SYSTEM_DISK) -> Path:
    """Move the segments' files out of the log, durably. Returns their folder. StorageError when the disk fails.

    The last segment goes first: after a kill in between, the log is still contiguous, and the next recovery moves the rest."""
    folder = _make_folder(directory, disk)
    for segment in reversed(segments):
        paths = segment.paths()
        segment.abandon()
        for path in paths:
            rename(path, folder / path.name, disk)
    sync_directory(folder, disk=disk)
    sync_directory(directory, disk=disk)
    return folder


def keep_tail(segment: LogSegment, position: int, folder: Path | None, disk: Disk = SYSTEM_DISK) -> Path | None:
    """Copy the segment's data from `position` on, which is about to be truncated. Returns the folder of the copy.

    It is a copy because the batches before it stay. A failure does not prevent the start: on a full disk the tail is lost, as it always
    is with Kafka."""
    try:
        folder = folder or _make_folder(segment.log_path.parent, disk)
        path = folder / f"{segment.log_path.name}.from-{position}"
        copy = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            while position < segment.size_bytes:
                chunk = segment.read_batch(position, min(COPY_BYTES, segment.size_bytes - position))
                write_fully(copy, chunk, disk)
                position += len(chunk)
        finally:
            disk.close(copy)
    except (OSError, StorageError) as error:
        logger.warning("the torn end of %s could not be kept: %s", segment.log_path, error)
    return folder


def _make_folder(directory: Path, disk: Disk) -> Path:
    with storage_errors("create a folder in", directory):
        for number in count(1):
            folder = directory / f"{SET_ASIDE_PREFIX}{number}"
            try:
                disk.mkdir(folder)
            except FileExistsError:
                continue
            return folder
    raise AssertionError("unreachable")
