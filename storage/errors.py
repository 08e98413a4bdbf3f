"""The errors of storage when the disk, not the client, is at fault.

A client's mistake is a `KafkaError` (protocol/errors.py). A `StorageError` takes the log directory offline: nothing below the
log manager catches it, except a `CorruptFileError` by code that can rebuild the file it names.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class StorageError(Exception):
    """The disk refused an operation, or holds something that cannot be used. `path` is the file or directory concerned."""

    def __init__(self, message: str, *, path: str | Path | None = None) -> None:
        super().__init__(message)
        self.path = path


class CorruptFileError(StorageError):
    """A file was read but its content is wrong. Files that are derived from the batches are rebuilt; others stop the directory."""


class DirectoryInUseError(StorageError):
    """Another broker holds the log directory. Its disk works, so a start without the directory would be wrong."""


def is_descriptor_shortage(error: BaseException | None) -> bool:
    """Whether the cause of `error` is a lack of free descriptors in the process or the system, and not the disk."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        error = error.__cause__
    return False


@contextmanager
def storage_errors(action: str, path: str | Path) -> Iterator[None]:
    """Turns an OSError of the block into a StorageError that says what was attempted on which path.

    It costs about a microsecond: calls made once per append catch OSError themselves.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot {action} {path}: {error.strerror or error}", path=path) from error
