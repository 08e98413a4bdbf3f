"""What a process does not use goes back to the system, when it has grown and not again and again."""

from __future__ import annotations

import mmap
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from broker.server.unused_memory import CHANGE_BYTES, INTERVAL_MS, SPARE_BYTES, UnusedMemory, anonymous_bytes
from tests.support.clock import ManualClock

START_BYTES = 30 << 20
LARGE_BYTES = START_BYTES + SPARE_BYTES + CHANGE_BYTES


class Process:
    """A clock, the size of the process, and how often memory was given back."""

    def __init__(self, size: int = START_BYTES) -> None:
        self.clock = ManualClock()
        self.size = size
        self.done: list[str] = []
        self.unused_memory = UnusedMemory(self.clock, self._run_blocking, lambda: self.size)
        self.unused_memory.start()

    def _run_blocking(self, function: Callable[..., Any]) -> Any:
        self.done.append(function.__name__)


def test_process_that_has_not_grown_is_left_alone() -> None:
    process = Process()
    process.size += SPARE_BYTES - 1

    process.clock.advance(100 * INTERVAL_MS)

    assert process.done == []


def test_process_that_has_grown_trims_once_and_again_when_its_size_has_changed() -> None:
    process = Process()
    process.size = LARGE_BYTES

    process.clock.advance(10 * INTERVAL_MS)
    assert process.done == ["trim_heap"]
    process.size += CHANGE_BYTES
    process.clock.advance(10 * INTERVAL_MS)

    assert process.done == ["trim_heap"] * 2


def test_nothing_is_looked_at_after_the_stop_or_where_the_size_is_unknown() -> None:
    stopped, blind = Process(), Process(size=0)
    stopped.unused_memory.stop()

    assert stopped.clock.pending_timers == []
    assert blind.clock.pending_timers == []


@pytest.mark.skipif(sys.platform != "linux", reason="the GNU C library's allocator")
def test_trim_gives_freed_strings_back_that_another_one_kept_from_it() -> None:
    """In a process of its own: another test's memory would hide it."""
    program = (
        "import ctypes\n"
        "from broker.server.unused_memory import anonymous_bytes, trim_heap\n"
        "kept = [bytes(4000) for _ in range(10_000)][::100]\n"  # one in 100 stays
        "before = anonymous_bytes()\n"
        "trim_heap()\n"
        "print(before - anonymous_bytes())"
    )

    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)

    assert int(found.stdout) > 30_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_anonymous_memory_grows_with_what_is_written() -> None:
    before = anonymous_bytes()

    # Mapped, for an allocator may have 32 MB at hand that were touched before.
    with mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        block.write(b"x" * (32 << 20))
        grown = anonymous_bytes() - before

    assert grown > 30 << 20
