"""What a process does not use goes back to the system, when it has grown and not again and again."""

from __future__ import annotations

import mmap
import subprocess
import sys
from collections.abc import Callable, Generator
from typing import Any

import pytest

from broker.unused_memory import CHANGE_BYTES, INTERVAL_MAX_MS, INTERVAL_MS, SPARE_BYTES, SWEEPS, UnusedMemory, anonymous_bytes
from tests.support.clock import ManualClock, ManualTimer

START_BYTES = 30 << 20
LARGE_BYTES = START_BYTES + SPARE_BYTES + CHANGE_BYTES


class Process:
    """A clock, the size of the process, and how often memory was given back."""

    def __init__(self, size: int = START_BYTES, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.size = size
        self.done: list[str] = []
        forget = [lambda: self.done.append("hashes"), lambda: self.done.append("codecs")]
        sweep = lambda: self.done.append("lists")  # noqa: E731
        self.unused_memory = UnusedMemory(self.clock, forget, sweep, self._run_blocking, lambda: self.size)
        self.unused_memory.start()

    def _run_blocking(self, function: Callable[..., Any]) -> None:
        self.done.append(function.__name__)


def test_process_that_has_not_grown_is_left_alone() -> None:
    process = Process()
    process.size += SPARE_BYTES - 1

    process.clock.advance(10 * INTERVAL_MAX_MS)

    assert process.done == []


def test_process_that_has_grown_forgets_in_order_and_trims_then() -> None:
    process = Process()
    process.size = LARGE_BYTES

    process.clock.advance(INTERVAL_MS)

    assert process.done == ["hashes", "codecs", "lists", "trim_heap"]


def test_each_step_has_a_turn_of_its_own() -> None:
    """Five caches at once, and what lets go of the codecs' objects, took 5 ms."""
    turns: list[int] = []

    class Clock(ManualClock):
        def call_later(self, delay_ms: float, callback: Callable[..., Any], *arguments: Any) -> ManualTimer:
            def fire() -> None:
                turns.append(len(process.done))
                callback(*arguments)

            return super().call_later(delay_ms, fire)

    process = Process(clock=Clock())
    process.size = LARGE_BYTES

    process.clock.advance(INTERVAL_MS)

    assert process.done == ["hashes", "codecs", "lists", "trim_heap"]
    assert turns == [0, 1, 2, 3]


def test_a_step_in_pieces_has_a_turn_for_each() -> None:
    process = Process()

    def pieces() -> Generator[None, None, None]:
        for number in range(3):
            process.done.append(f"piece {number}")
            yield

    turns: list[int] = []
    call_later = process.clock.call_later

    def counted(delay_ms: float, callback: Callable[..., Any], *arguments: Any) -> ManualTimer:
        return call_later(delay_ms, lambda: (turns.append(len(process.done)), callback(*arguments)))

    process.clock.call_later = counted  # type: ignore[method-assign]
    process.unused_memory._forget = (pieces, lambda: process.done.append("after"))
    process.size = LARGE_BYTES

    process.clock.advance(INTERVAL_MS)

    assert process.done == ["piece 0", "piece 1", "piece 2", "after", "lists", "trim_heap"]
    assert {0, 1, 2, 3, 4, 5} <= set(turns)


def test_a_stop_between_two_steps_is_the_end_of_them() -> None:
    process = Process()
    process.size = LARGE_BYTES
    process.clock.call_later(INTERVAL_MS, process.unused_memory.stop)

    process.clock.advance(INTERVAL_MS)

    assert process.done == ["hashes"]
    assert process.clock.pending_timers == []


def test_free_places_are_dropped_again_and_again_until_the_next_look() -> None:
    """Each time those of other objects are free: an object that lives keeps its place, and with it the memory around."""
    process = Process()
    process.size = LARGE_BYTES
    process.clock.advance(INTERVAL_MS)
    process.done.clear()

    process.clock.advance(INTERVAL_MS - 1)

    assert process.done == ["lists"] * (SWEEPS - 1)


def test_intervals_grow_while_nothing_comes_back() -> None:
    process = Process()
    process.size = LARGE_BYTES

    process.clock.advance(INTERVAL_MAX_MS * 10)

    assert process.done.count("trim_heap") == 4 + (10 * INTERVAL_MAX_MS - 15 * INTERVAL_MS) // INTERVAL_MAX_MS


def test_interval_is_short_again_when_the_process_grows_again() -> None:
    process = Process()
    process.size = LARGE_BYTES
    process.clock.advance(INTERVAL_MAX_MS * 10)
    process.done.clear()

    process.size += CHANGE_BYTES
    process.clock.advance(INTERVAL_MS)

    assert process.done == ["hashes", "codecs", "lists", "trim_heap"]


def test_nothing_is_looked_at_after_the_stop_or_where_the_size_is_unknown() -> None:
    stopped, sweeping, blind = Process(), Process(), Process(size=0)
    stopped.unused_memory.stop()
    sweeping.size = LARGE_BYTES
    sweeping.clock.advance(INTERVAL_MS)
    sweeping.unused_memory.stop()

    assert sweeping.clock.pending_timers == []
    assert stopped.clock.pending_timers == []
    assert blind.clock.pending_timers == []


@pytest.mark.skipif(sys.platform != "linux", reason="the GNU C library's allocator")
def test_trim_gives_freed_strings_back_that_another_one_kept_from_it() -> None:
    """In a process of its own: another test's memory would hide it."""
    program = (
        "import ctypes\n"
        "from broker.unused_memory import anonymous_bytes, trim_heap\n"
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


@pytest.mark.skipif(sys.platform != "linux" or sys.version_info >= (3, 13), reason="the allocator and the free lists as measured")
def test_objects_that_come_and_go_leave_the_memory_that_they_kept() -> None:
    """300 lists that are replaced all the time, made while memory was high: their places go round, wherever they are."""
    program = (
        "import random\n"
        "from broker.clock import SystemClock\n"
        "from broker.garbage import GarbageCollection\n"
        "from broker.unused_memory import SWEEPS, anonymous_bytes\n"
        "collection = GarbageCollection(SystemClock(None), lambda: 0)\n"
        "state = [[] for _ in range(300)]\n"
        "def come_and_go(count):\n"
        "    for number in range(count):\n"
        "        state[random.randrange(300)] = [number]\n"
        "many = []\n"
        "for number in range(300_000):\n"
        "    many.append([number, str(number)])\n"
        "    if number % 50 == 0: come_and_go(1)\n"
        "while many: del many[-500:]; come_and_go(1)\n"
        "found = []\n"
        "for _ in range(1 + SWEEPS):\n"
        "    found.append(anonymous_bytes())\n"
        "    come_and_go(100)\n"
        "    collection.drop_free_lists()\n"
        "print(found[1] - anonymous_bytes(), found)"
    )

    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)

    assert int(found.stdout.split()[0]) > 5_000_000, found.stdout
