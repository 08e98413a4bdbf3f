"""Names of the files in a log directory, and the few file operations that must survive a crash.

Owns every file name and suffix of Kafka's layout, and atomic replacement. No state. Every function raises StorageError, never
OSError, unless it says so.

Layout: `<log dir>/<topic>-<partition>/<20-digit offset><suffix>`. The number in a `.snapshot` name is the offset that follows the
last one it covers; in the others it is the segment's base offset. (LogFileUtils, LocalLog.logDeleteDirName)
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from storage.disk import PRIVATE_DIRECTORY, PRIVATE_FILE, SYSTEM_DISK, Data, Disk
from storage.errors import CorruptFileError, DirectoryInUseError, StorageError, storage_errors

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX = ".snapshot"

SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"

DELETED_DIRECTORY_SUFFIX = "-delete"
FUTURE_DIRECTORY_SUFFIX = "-future"
STRAY_DIRECTORY_SUFFIX = "-stray"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"

FILE_NAME_LENGTH_MAX = 255
OFFSET_DIGITS = 20

_OFFSET_FILE_NAME = re.compile(r"(\d{20})(\..+)")
_PARTITION_DIRECTORY = re.compile(r"(.+)-(\d+)")
_DELETED_DIRECTORY = re.compile(r"(.+)-(\d+)\.([0-9a-f]{32})-(?:delete|future|stray)")
_FUTURE_DIRECTORY = re.compile(r"(.+)-(\d+)\.([0-9a-f]{32})-future")


class TopicPartition(NamedTuple):
    """A topic's name and a partition's index; equal to the plain pair."""

    topic: str
    partition: int


def offset_file_name(offset: int, suffix: str) -> str:
    """Returns `<20 digits><suffix>`; the suffix includes its dot."""
    return f"{offset:020d}{suffix}"


def find_offset(file_name: str, suffix: str) -> int | None:
    """Returns the offset in `<20 digits><suffix>`, or None for any other name (`.deleted` and the like included)."""
    match = _OFFSET_FILE_NAME.fullmatch(file_name)
    return int(match[1]) if match and match[2] == suffix else None


def partition_directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def find_topic_partition(directory_name: str) -> TopicPartition | None:
    """Returns what a live partition's directory name stands for; None for a directory marked for deletion or not ours."""
    if _DELETED_DIRECTORY.fullmatch(directory_name):
        return None
    match = _PARTITION_DIRECTORY.fullmatch(directory_name)
    return TopicPartition(match[1], int(match[2])) if match else None


def deleted_directory_name(topic: str, partition: int, unique_hex: str) -> str:
    """Returns the name a partition's directory takes before it is deleted; `unique_hex` is 32 hex digits from the caller.

    A long topic name is cut so that the whole fits a file name, as Kafka does (LocalLog.logDeleteDirName).
    """
    suffix = f"-{partition}.{unique_hex}{DELETED_DIRECTORY_SUFFIX}"
    return topic[: FILE_NAME_LENGTH_MAX - len(suffix)] + suffix


def future_directory_name(topic: str, partition: int, unique_hex: str) -> str:
    """Returns the name of a copy that is to take the partition's place from another log directory (KIP-113). Nothing is cut: a name
    above FILE_NAME_LENGTH_MAX is for the caller to refuse (UnifiedLog.logFutureDirName)."""
    return f"{topic}-{partition}.{unique_hex}{FUTURE_DIRECTORY_SUFFIX}"


def stray_directory_name(topic: str, partition: int, unique_hex: str) -> str:
    """Returns the name of a partition's directory that is set aside, cut as that of a deleted one (LocalLog.logStrayDirName)."""
    suffix = f"-{partition}.{unique_hex}{STRAY_DIRECTORY_SUFFIX}"
    return topic[: FILE_NAME_LENGTH_MAX - len(suffix)] + suffix


def find_future_partition(directory_name: str) -> TopicPartition | None:
    """Returns whose copy a directory is that is still being made; None for any other name."""
    match = _FUTURE_DIRECTORY.fullmatch(directory_name)
    return TopicPartition(match[1], int(match[2])) if match else None


def is_deleted_directory(directory_name: str) -> bool:
    return directory_name.endswith(DELETED_DIRECTORY_SUFFIX) and _DELETED_DIRECTORY.fullmatch(directory_name) is not None


def read_file(path: Path, disk: Disk = SYSTEM_DISK) -> bytes | None:
    """Returns a small file's content, or None when there is no such file."""
    try:
        descriptor = disk.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}", path=path) from error
    with storage_errors("read", path):
        try:
            return _read_to_end(descriptor, disk)
        finally:
            disk.close(descriptor)


def _read_to_end(descriptor: int, disk: Disk) -> bytes:
    content = b""
    wanted_bytes = disk.fstat(descriptor).st_size + 1  # one more: a file that does not grow is read with one call
    while chunk := disk.pread(descriptor, wanted_bytes, len(content)):
        content += chunk
        if len(chunk) < wanted_bytes:
            break
    return content


def read_text_file(path: Path, disk: Disk = SYSTEM_DISK) -> str | None:
    """Returns a small UTF-8 file's content, or None when there is no such file; CorruptFileError when it is not UTF-8."""
    content = read_file(path, disk)
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{path} is not UTF-8 text", path=path) from error


def replace_file(path: Path, content: bytes, *, fsync: bool = True, disk: Disk = SYSTEM_DISK) -> None:
    """Replaces the file so that a reader sees the old content or the new one, never a mixture.

    With `fsync` it is also durable on return: without it, a power cut may leave an empty file under the final name.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    with storage_errors("write", path):
        descriptor = disk.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            write_fully(descriptor, content, disk)
            if fsync:
                disk.fsync(descriptor)
        finally:
            disk.close(descriptor)
        disk.replace(temporary, path)
    if fsync:
        sync_directory(path.parent, disk=disk)


def write_fully(descriptor: int, content: Data, disk: Disk = SYSTEM_DISK) -> None:
    """Writes everything at the descriptor's position. Raises OSError: its callers name the file."""
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[disk.write(descriptor, remaining) :]


def delete_if_exists(path: Path, disk: Disk = SYSTEM_DISK) -> bool:
    """Deletes the file and returns whether it was there."""
    try:
        disk.unlink(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageError(f"cannot delete {path}: {error.strerror or error}", path=path) from error
    return True


def delete_tree(directory: Path, disk: Disk = SYSTEM_DISK) -> None:
    """Deletes a directory with all that is in it. What cannot be deleted stays, and nothing is raised. Links are not followed."""
    try:
        entries = disk.scan(directory)
    except OSError:
        return
    for entry in entries:
        path = directory / entry.name
        try:
            disk.unlink(path)
        except OSError:  # EISDIR, on some systems EPERM
            if entry.is_directory:
                delete_tree(path, disk)
    with suppress(OSError):
        disk.rmdir(directory)


def make_directory(directory: Path, disk: Disk = SYSTEM_DISK) -> None:
    """Makes the directory for this user alone, and those above it that are missing, unless it is there. Durably: without its name in
    the directory above nothing in it survives a power cut."""
    if disk.exists(directory):
        return
    make_directory(directory.parent, disk)
    with storage_errors("create", directory), suppress(FileExistsError):
        disk.mkdir(directory, PRIVATE_DIRECTORY)
    sync_directory(directory.parent, disk=disk)


def rename(source: Path, target: Path, disk: Disk = SYSTEM_DISK) -> None:
    """Renames without an fsync of the directory: after a crash either name may be found, and recovery accepts both."""
    with storage_errors("rename", source):
        disk.replace(source, target)


def sync_file(path: Path, disk: Disk = SYSTEM_DISK) -> None:
    """Makes the data of a closed file durable; does nothing when it was removed. Raises OSError, which is never retried."""
    try:
        descriptor = disk.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        disk.fdatasync(descriptor)
    finally:
        disk.close(descriptor)


def sync_directory(directory: Path, *, missing_ok: bool = False, disk: Disk = SYSTEM_DISK) -> None:
    """Makes creations, renames and deletions in the directory durable. With `missing_ok` it need not be there."""
    with storage_errors("fsync directory", directory):
        try:
            descriptor = disk.open(directory, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            if missing_ok:
                return
            raise
        try:
            disk.fsync(descriptor)
        finally:
            disk.close(descriptor)


def lock_directory(directory: Path, disk: Disk = SYSTEM_DISK) -> int:
    """Takes the directory's `.lock` and returns its descriptor, whose end is the lock's; DirectoryInUseError when another broker
    holds it."""
    path = directory / LOCK_FILE
    with storage_errors("open", path):
        descriptor = disk.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        is_ours = disk.lock(descriptor)
    except OSError as error:
        disk.close(descriptor)
        raise StorageError(f"cannot lock {path}: {error.strerror}", path=path) from error
    if not is_ours:
        disk.close(descriptor)
        raise DirectoryInUseError(f"log directory {directory} is in use by another broker (its .lock is held)", path=directory)
    return descriptor
