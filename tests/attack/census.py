"""What a broker's memory consists of, told by the broker itself when it gets SIGUSR2: who asks where megabytes stay that nobody needs.

Resident memory is counted three times: as it is, after a collection of everything, and after the free lists of the C library were given
back. What is left then is alive, or in pools of Python's that one living object each keeps. The census stops the loop for seconds.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TextIO

TYPES_SHOWN = 25
LARGE_MIN = 200_000  # bytes
LARGE_SHOWN = 15
ARENA_BITS = 20
SMALL_MAX = 512  # bytes: what Python's own allocator holds
LONELY_MAX = 40_000
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


_MALLINFO2 = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _Mallinfo(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_size_t) for name in _MALLINFO2)


def take_census_on_signal(path: Path) -> None:
    """To be called in the main thread."""
    signal.signal(signal.SIGUSR2, lambda number, frame: _write(path))


def _write(path: Path) -> None:
    part = path.with_suffix(".part")
    with part.open("w") as out:
        print(f"resident {_resident_mb():.1f} MB", file=out)
        print(f"C library: {_malloc_line()}", file=out)
        print(_small_objects(), file=out)
        _count_objects(out)
        gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        _show_lonely(out)
        print(f"after a collection that found {found}: resident {_resident_mb():.1f} MB; {_malloc_line()}", file=out)
        print(_small_objects(), file=out)
        ctypes.CDLL(None).malloc_trim(0)
        print(f"after malloc_trim: resident {_resident_mb():.1f} MB; {_malloc_line()}", file=out)
    part.rename(path)


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES / 1e6


def _malloc_line() -> str:
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _Mallinfo
    found = mallinfo2()
    return (
        f"used {found.uordblks / 1e6:.1f} MB, free {found.fordblks / 1e6:.1f} MB (at the top {found.keepcost / 1e6:.1f}), "
        f"mapped {found.hblkhd / 1e6:.1f} MB in {found.hblks}"
    )


def _small_objects() -> str:
    """Of Python's allocator, which writes to the process's stderr only."""
    with tempfile.TemporaryFile() as file:
        stderr = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            sys._debugmallocstats()
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        file.seek(0)
        lines = file.read().decode().splitlines()
    kept = ("arenas *", "# bytes in", "unused pools *")
    return "\n".join(f"    {line.strip()}" for line in lines if "=" in line and any(part in line for part in kept))


def _count_objects(out: TextIO) -> None:
    gc.unfreeze()
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    large: list[tuple[int, str]] = []
    seen: set[int] = set()
    tracked = gc.get_objects()
    for container in tracked:
        for found in (container, *gc.get_referents(container)):
            if id(found) in seen:
                continue
            seen.add(id(found))
            size = sys.getsizeof(found, 0)
            name = type(found).__qualname__
            counts[name] += 1
            sizes[name] += size
            if size >= LARGE_MIN:
                large.append((size, f"{name} held by {_holders(found, tracked)}"))
    print(f"{len(seen)} objects, {sum(sizes.values()) / 1e6:.1f} MB", file=out)
    for name, size in sizes.most_common(TYPES_SHOWN):
        print(f"    {size / 1e6:8.2f} MB {counts[name]:8} {name}", file=out)
    for size, what in sorted(large, reverse=True)[:LARGE_SHOWN]:
        print(f"    {size / 1e6:8.2f} MB alone: {what}", file=out)
    gc.freeze()


def _holders(found: object, own: list[object]) -> str:
    names = [type(holder).__qualname__ for holder in gc.get_referrers(found) if holder is not own and type(holder).__name__ != "frame"]
    return ", ".join(names[:4])


def _show_lonely(out: TextIO) -> None:
    """Objects that keep a megabyte of Python's allocator alive nearly alone: at most LONELY_MAX bytes of it are in use."""
    gc.unfreeze()
    arenas: dict[int, dict[int, object]] = {}
    for container in gc.get_objects():
        for found in (container, *gc.get_referents(container)):
            if sys.getsizeof(found, 0) <= SMALL_MAX:
                arenas.setdefault(id(found) >> ARENA_BITS, {})[id(found)] = found
    gc.freeze()
    for address, objects in sorted(arenas.items()):
        if sum(sys.getsizeof(found, 0) for found in objects.values()) <= LONELY_MAX:
            texts = Counter(f"{type(found).__qualname__} {str(found)[:70]!r}" for found in objects.values())
            print(f"  arena {address:x}, {len(objects)} objects: {', '.join(list(texts)[:8])}", file=out)
