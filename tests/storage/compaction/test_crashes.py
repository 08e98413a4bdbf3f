"""A kill or a power cut at any step of a compaction loses nothing: opened again, the log has the same last value for every key, and a
compaction after that ends as one that was left alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from storage.compaction.cleaner import compact
from storage.compaction.selection import find_cleanable, make_plan
from storage.log import Log
from tests.simulation.disk import SimulatedDisk
from tests.storage.compaction.logs import LIMIT_BYTES, NOW_MS, last_values, plan_of, put, records_of, swap
from tests.storage.dying_disk import KilledError
from tests.storage.test_replace_segments import MakePlace, Place, make_place, simulated_place  # noqa: F401 - a fixture
from tests.support.turns import finished

pytestmark = pytest.mark.long("a crash after any call")

KEYS = 30
RECORDS = 120


def fill(place: Place) -> Log:
    """Segments of a few records each; every key has older records, some end with a tombstone."""
    log = place.open_log()
    draw = random.Random(7)
    for number in range(RECORDS):
        value = None if number > RECORDS // 2 and draw.random() < 0.1 else f"value {number} " * draw.randrange(1, 8)
        put(log, (f"key{draw.randrange(KEYS)}", value))
    log.roll(0)
    log.flush()
    return log


def compact_once(place: Place, log: Log) -> None:
    plan = plan_of(log, read_bytes=500, disk=place.disk)  # type: ignore[arg-type]
    assert swap(log, plan, finished(compact(plan)))


def compact_killed(place: Place, calls: int) -> bool:
    """Fill a log and compact it, killed after `calls` changing calls. Returns whether it came to the end before."""
    log = fill(place)
    place.disk.die_after(calls)
    try:
        compact_once(place, log)
    except KilledError:
        return False
    return True


def check(place: Place, expected: dict[bytes | None, bytes]) -> None:
    place.restart()
    log = place.open_log(recovery_point=RECORDS)
    log.set_high_watermark(log.log_end_offset)
    assert last_values(records_of(log)) == expected
    assert log.log_end_offset == RECORDS
    assert place.names(".cleaned", ".swap", ".deleted") == []

    compact_once(place, log)

    found = records_of(log)
    assert last_values(found) == expected
    assert len(found) == len({record.key for record in found})


@pytest.fixture
def expected(tmp_path: Path) -> dict[bytes | None, bytes]:
    return last_values(records_of(fill(simulated_place())))


def test_a_kill_after_any_call_loses_no_key(make_place: MakePlace, expected: dict[bytes | None, bytes]) -> None:  # noqa: F811
    calls = 0
    is_done = False
    while not is_done:
        place = make_place()
        is_done = compact_killed(place, calls)
        check(place, expected)
        calls += 7 if calls < 100 else 23
    assert calls > 100


@pytest.mark.parametrize("seed", range(60))
def test_a_power_cut_after_any_call_loses_no_key(seed: int, expected: dict[bytes | None, bytes]) -> None:
    place = simulated_place(seed)
    assert isinstance(place.simulated, SimulatedDisk)

    compact_killed(place, random.Random(seed).randrange(400))
    place.simulated.cut_power()

    check(place, expected)


@pytest.mark.parametrize("seed", range(20))
def test_a_record_that_is_not_durable_supersedes_none_that_is(seed: int) -> None:
    """Else a power cut takes the newer record of a key when the older one is gone already."""
    place = simulated_place(seed)
    assert isinstance(place.simulated, SimulatedDisk)
    log = place.open_log()
    for value in ("old", "new"):
        if value == "new":
            log.roll(0)
            log.flush()
        for number in range(KEYS):
            put(log, (f"key{number}", value))
    log.roll(0)  # asks for a flush, which is still to come
    plan = make_plan(find_cleanable(log, NOW_MS), now_ms=NOW_MS, map_limit_bytes=LIMIT_BYTES, read_bytes=500, disk=place.disk)  # type: ignore[arg-type]
    assert swap(log, plan, finished(compact(plan)))

    place.simulated.cut_power()
    place.restart()
    log = place.open_log(recovery_point=KEYS)

    found = last_values(records_of(log))
    assert len(found) == KEYS and set(found.values()) <= {b"old", b"new"}
