"""Where the objects of large works lie: in the C library's heap, which gives unused pages back.

Python's allocator for small objects gives a megabyte back only when none is left in it, so that after a request of 190,000 entries a few
dozen objects that came about meanwhile, and stay, keep most of what it took: of 130 MB for 8,500 topics 65 stayed. The C library's is
5 % slower at small requests, so that it serves only while works in pieces are not finished (broker/turns.py, broker/loop_job.py).

Freeing needs no change: Python's allocator takes what is over 512 bytes from the C library too, and tells by each address which of
the two it came from. So only `malloc` and `calloc` are exchanged, by PyMem_SetAllocator, and only where exactly these two allocators are in
place: with a debugger's or tracemalloc's hooks, or another allocator, all stays as it is.
"""

from __future__ import annotations

import ctypes
import sys

_DOMAIN_RAW, _DOMAIN_MEMORY, _DOMAIN_OBJECTS = 0, 1, 2
_DOMAINS = (_DOMAIN_MEMORY, _DOMAIN_OBJECTS)
"""Both are served by Python's own allocator: lists keep their elements in the first one's."""


_NO_FAST_BINS = (1, 0)
"""M_MXFAST of glibc's mallopt. Its lists of small free blocks are joined all at once when a large block is freed: 20 to 50 ms after a topic
of 9,000 partitions was deleted. Without them each block is joined as it is freed."""


class _Allocator(ctypes.Structure):
    """PyMemAllocatorEx."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free"))


class LargeWorksMemory:
    """Owned by the process. `begin` and `end` are idempotent, take some microseconds, and are called by the loop's thread."""

    def __init__(self) -> None:
        self._usual = _get(_DOMAIN_OBJECTS)
        self._large = _get(_DOMAIN_OBJECTS)
        system = _get(_DOMAIN_RAW)
        self._large.malloc, self._large.calloc = system.malloc, system.calloc
        has_usual = sys.implementation.name == "cpython" and "t" not in sys.abiflags  # t: a build without the GIL
        has_hooks = system.context is not None or self._usual.context is not None
        is_one = all(bytes(_get(domain)) == bytes(self._usual) for domain in _DOMAINS)
        self.is_possible = has_usual and is_one and not has_hooks and self._usual.malloc != system.malloc
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if self.is_possible and mallopt is not None:
            mallopt(*_NO_FAST_BINS)

    @property
    def is_used(self) -> bool:
        """Whether small objects come from the C library now."""
        return self.is_possible and all(bytes(_get(domain)) == bytes(self._large) for domain in _DOMAINS)

    def begin(self) -> None:
        self._exchange(self._usual, self._large)

    def end(self) -> None:
        self._exchange(self._large, self._usual)

    def _exchange(self, old: _Allocator, new: _Allocator) -> None:
        if not self.is_possible:
            return
        for domain in _DOMAINS:
            # Whoever has come in between, tracemalloc for instance, keeps its place.
            if bytes(_get(domain)) == bytes(old):
                ctypes.pythonapi.PyMem_SetAllocator(domain, ctypes.byref(new))


def _get(domain: int) -> _Allocator:
    found = _Allocator()
    ctypes.pythonapi.PyMem_GetAllocator(domain, ctypes.byref(found))
    return found
