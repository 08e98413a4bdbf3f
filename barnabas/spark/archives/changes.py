"""Who may change the files of an archive that readers see: one job at a time, for the moments in which it does.

Archiving and compaction run beside each other. On a local disk each takes a lock of the archive while it moves files. Other file systems
have no such lock: there nothing is exchanged, and the two touch different files.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from .reading import ArchiveError

CHANGING = "_changing"
COMPACTING = "_compacting"


@contextlib.contextmanager
def changing(local_root: str | None) -> Iterator[bool]:
    """Waits for the lock. `local_root` is the archive's path on this machine, None for another file system. Yields whether it is held."""
    with contextlib.ExitStack() as stack:
        yield local_root is not None and _lock(Path(local_root) / CHANGING, stack, fcntl.LOCK_EX)


@contextlib.contextmanager
def compacting(local_root: str | None) -> Iterator[None]:
    """Raises ArchiveError while another process of this machine compacts the archive."""
    with contextlib.ExitStack() as stack:
        if local_root is not None:
            try:
                _lock(Path(local_root) / COMPACTING, stack, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ArchiveError(f"another job compacts {local_root}: one at a time") from error
        yield


def is_compacted_now(local_root: str | None) -> bool:
    """Whether a process of this machine compacts the archive. False where that cannot be known."""
    return not _can_share(local_root, fcntl.LOCK_SH | fcntl.LOCK_NB)


def await_compaction(local_root: str | None) -> None:
    """Returns when no process of this machine compacts the archive."""
    _can_share(local_root, fcntl.LOCK_SH)


def _can_share(local_root: str | None, how: int) -> bool:
    if local_root is None:
        return True
    try:
        with (Path(local_root) / COMPACTING).open() as file:
            fcntl.flock(file, how)  # and at once it is given back
    except BlockingIOError:
        return False
    except OSError:  # nobody has ever compacted it, or the file system has no locks
        return True
    return True


def _lock(path: Path, stack: contextlib.ExitStack, how: int) -> bool:
    """False if the file system has no locks. A process that ends gives its locks back, however it ends."""
    file = stack.enter_context(path.open("a+"))
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True
