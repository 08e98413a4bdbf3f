"""The meter sees a hold that is there, and tells the loop's own time from the machine's."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import pytest
import uvloop

from tests.attack.loop_meter import Hold, LoopMeter, StackSampler, between, read_holds

pytestmark = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the scheduler's figures are Linux's")

BUSY_NS = 50_000_000


def test_a_callback_that_runs_long_is_a_hold_of_its_length(tmp_path: Path) -> None:
    path = tmp_path / "holds.bin"
    loop = uvloop.new_event_loop()
    LoopMeter(loop, path).start()

    def work() -> None:
        end_ns = time.thread_time_ns() + BUSY_NS
        while time.thread_time_ns() < end_ns:
            pass
        loop.call_later(0.01, loop.stop)

    loop.call_later(0.02, work)
    loop.run_forever()
    loop.close()

    longest = max(read_holds(path), key=lambda hold: hold.own_ns)
    assert longest.own_ns > BUSY_NS * 0.9
    assert longest.cpu_ns > BUSY_NS * 0.9


def test_what_the_machine_took_is_not_the_loops_own() -> None:
    assert Hold(end_ns=0, late_ns=30, cpu_ns=10, waited_ns=20).own_ns == 10
    assert Hold(end_ns=0, late_ns=30, cpu_ns=10, waited_ns=40).own_ns == 0


def test_what_the_loop_computed_is_its_own_however_long_it_had_waited_before() -> None:
    ms = 1_000_000

    assert Hold(end_ns=0, late_ns=670 * ms, cpu_ns=50 * ms, waited_ns=640 * ms).own_ns == 49 * ms


def test_holds_are_found_by_the_time_that_they_reach_into() -> None:
    holds = [Hold(end_ns, 10, 0, 0) for end_ns in (100, 200, 300)]

    assert between(holds, 195, 205) == holds[1:2]
    assert between(holds, 101, 289) == holds[1:2]
    assert between(holds, 95, 290) == holds


def test_a_half_written_record_is_left_for_the_next_look(tmp_path: Path) -> None:
    path = tmp_path / "holds.bin"
    path.write_bytes(bytes(32) + b"\x01" * 5)

    assert read_holds(path) == [Hold(0, 0, 0, 0)]
    assert read_holds(tmp_path / "none") == []


def test_the_sampler_names_what_computed_within_a_hold(tmp_path: Path) -> None:
    loop = uvloop.new_event_loop()
    meter = LoopMeter(loop, tmp_path / "holds.bin")
    meter.start()
    sampler = StackSampler(meter, tmp_path / "stacks.txt")

    def compute() -> None:
        end_ns = time.thread_time_ns() + BUSY_NS
        while time.thread_time_ns() < end_ns:
            pass
        gc.collect()
        loop.call_later(0.01, loop.stop)

    loop.call_later(0.02, compute)
    loop.run_forever()
    loop.close()
    sampler.stop()

    stacks = (tmp_path / "stacks.txt").read_text()
    assert " compute < " in stacks
    assert "collected generation 2 for " in stacks
