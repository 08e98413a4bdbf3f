"""Whether a file's bytes can be sent without waiting for the disk, and bringing them in when not.

`os.sendfile` on a page that is not in memory blocks the whole loop for a disk read. Linux answers the question without
reading: preadv2 with RWF_NOWAIT fails with EAGAIN on a page that is absent. Elsewhere every slice counts as resident.
"""

from __future__ import annotations

import os

PROBE_INTERVAL = 128 * 1024  # bytes; the kernel reads ahead in windows of about this size, so pages of one window come and go together

_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)


def is_resident(fd: int, position: int, size: int) -> bool:
    """Whether bytes [position, position + size) are, as far as probes tell, in the page cache. About 0.7 µs a probe."""
    if _NOWAIT is None:
        return True
    probe = [bytearray(1)]
    last = position + size - 1
    try:
        for at in range(position, last, PROBE_INTERVAL):
            os.preadv(fd, probe, at, _NOWAIT)
        os.preadv(fd, probe, last, _NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # a file system without RWF_NOWAIT: nothing to be learnt
        return True
    return True


def read_in(fd: int, position: int, size: int) -> None:
    """Bring the pages of [position, position + size) in, copying next to nothing. Blocks: for the thread pool only."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, position, size, os.POSIX_FADV_WILLNEED)  # begins all the reads …
    probe = [bytearray(1)]
    for at in (*range(position, position + size, PROBE_INTERVAL), position + size - 1):
        if os.preadv(fd, probe, at) == 0:  # … and each of these waits for one of them
            return
