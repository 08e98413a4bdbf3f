"""Segments that are replaced by compacted ones: the log holds all of the old or all of the new, whatever call a kill or a power cut
comes after, on this machine's disk and on the simulated one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from config.topic import LogConfig
from storage import log_opener
from storage.disk import SYSTEM_DISK
from storage.file_slice import FileSlice
from storage.files import CLEANED_SUFFIX
from storage.log import Log
from storage.segment import LogSegment
from storage.transaction_index import AbortedTransaction
from tests.simulation.disk import SimulatedDisk
from tests.storage.conftest import NOW_MS, TOPIC_ID, append_idempotent, read_all_offsets, read_offsets
from tests.storage.dying_disk import DyingDisk, KilledError

pytestmark = pytest.mark.long("a crash after any call")

CONFIG = replace(LogConfig(), segment_bytes=1000, index_interval_bytes=100, file_delete_delay_ms=5)
APPENDS = 40
OLD_OFFSETS = list(range(APPENDS))
NEW_SEGMENTS = 2


class Place:
    """A partition's directory on one of the two disks, and the process that uses it. `simulated` is the disk below, if it is one."""

    def __init__(self, directory: Path, simulated: SimulatedDisk | None = None) -> None:
        self.directory = directory
        self.simulated = simulated
        self.restart()

    def restart(self) -> None:
        """The process of before, if there is one, is gone."""
        if self.simulated is None:
            self.disk = DyingDisk(SYSTEM_DISK)
        else:
            self.disk = DyingDisk(self.simulated.boot())

    def open_log(self, **arguments: Any) -> Log:
        return log_opener.open_log(self.directory, "t", 0, TOPIC_ID, CONFIG, now_ms=NOW_MS, disk=self.disk, **arguments)

    def names(self, *suffixes: str) -> list[str]:
        return [name for name, _ in self.disk.scan(self.directory) if name.endswith(suffixes)]


def simulated_place(seed: int = 0) -> Place:
    simulated = SimulatedDisk(random.Random(seed), lambda: NOW_MS / 1000, lambda kind, text: None)
    place = Place(Path("/logs/t-0"), simulated)
    place.disk.mkdir("/logs")
    place.disk.mkdir("/logs/t-0")
    simulated.sync_all()
    return place


@pytest.fixture(params=["this machine", "simulated"])
def make_place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Place]:
    """Makes an empty partition directory each time it is called."""
    numbers = count()

    def real_place() -> Place:
        directory = tmp_path / str(next(numbers)) / "t-0"
        directory.mkdir(parents=True)
        return Place(directory)

    return real_place if request.param == "this machine" else simulated_place


MakePlace = Callable[[], Place]


def fill(place: Place) -> Log:
    log = place.open_log()
    for sequence in range(APPENDS):
        append_idempotent(log, sequence)
    log.set_high_watermark(log.log_end_offset)
    log.flush()
    assert len(log.segments) > 6
    return log


def compact(place: Place, log: Log) -> tuple[list[LogSegment], list[LogSegment], list[int]]:
    """The segments from the second to the fifth, two new ones with every other batch of them and an aborted transaction each, and the
    offsets that then are left."""
    old = log.segments.from_index(1)[:4]
    new: list[LogSegment] = []
    dropped: set[int] = set()
    for half in (old[:2], old[2:]):
        segment = LogSegment.create(log.directory, half[0].base_offset, CONFIG, NOW_MS, place.disk, CLEANED_SUFFIX)
        for each in half:
            for index, (position, header) in enumerate(each.iterate_batches()):
                if index % 2:
                    segment.append_batches(memoryview(each.read_batch(position, header.size_bytes)), [header])
                else:
                    dropped.add(header.base_offset)
        base_offset = half[0].base_offset
        segment.indexes.transaction_index.append(AbortedTransaction(9, base_offset, base_offset + 1, base_offset + 2))
        segment.become_inactive()
        segment.flush()
        new.append(segment)
    return old, new, [offset for offset in OLD_OFFSETS if offset not in dropped]


def replace_killed(place: Place, calls: int) -> tuple[bool, list[int]]:
    """Fill a log and replace segments of it, killed after `calls` changing calls. Returns whether it came to the end before, and the
    offsets that it holds then."""
    log = fill(place)
    old, new, new_offsets = compact(place, log)
    place.disk.die_after(calls)
    try:
        return log.replace_segments(old, new, NOW_MS), new_offsets
    except KilledError:
        return False, new_offsets


def check(place: Place, new_offsets: list[int]) -> bool:
    """Opened again, the log holds all of the old or all of the new, and nothing is left over. Returns whether it is the new."""
    log = place.open_log(recovery_point=APPENDS)
    found = read_all_offsets(log)
    assert found in (OLD_OFFSETS, new_offsets)
    assert [read_offsets(log, offset)[0] for offset in found] == found
    assert len(log.segments.find_aborted(0, APPENDS)) == (NEW_SEGMENTS if found == new_offsets else 0)
    assert (log.log_start_offset, log.log_end_offset) == (0, APPENDS)
    assert append_idempotent(log, APPENDS - 1).is_duplicate
    assert place.names(".cleaned", ".swap", ".deleted") == []
    assert {int(name[:20]) for name in place.names(".snapshot")} <= {segment.base_offset for segment in log.segments}
    return found == new_offsets


def test_new_segments_take_the_place_of_the_old(make_place: MakePlace) -> None:
    place = make_place()
    log = fill(place)
    old, new, new_offsets = compact(place, log)
    held = log.read(old[0].base_offset, max_bytes=10_000, end_offset=APPENDS)
    assert isinstance(held, FileSlice)

    assert log.replace_segments(old, new, NOW_MS)

    assert read_all_offsets(log) == new_offsets
    assert held.read()[:8] == old[0].base_offset.to_bytes(8), "who was given a slice of an old segment reads on"
    assert append_idempotent(log, APPENDS).base_offset == APPENDS


def test_the_old_files_go_after_their_delay(make_place: MakePlace) -> None:
    place = make_place()
    log = fill(place)
    old, new, _ = compact(place, log)

    log.replace_segments(old, new, NOW_MS)

    assert log.deletions.take_due(NOW_MS + CONFIG.file_delete_delay_ms - 1) == []
    due = [path.name for deletion in log.deletions.take_due(NOW_MS + CONFIG.file_delete_delay_ms) for path in deletion.paths]
    assert sorted(due) == sorted(place.names(".deleted"))
    assert sum(name.endswith(".log.deleted") for name in due) == len(old)


def test_producers_snapshots_stay_where_a_segment_begins(make_place: MakePlace) -> None:
    place = make_place()
    log = fill(place)
    old, new, _ = compact(place, log)

    log.replace_segments(old, new, NOW_MS)

    left = {int(name[:20]) for name in place.names(".snapshot")}
    assert left & {segment.base_offset for segment in old} == {segment.base_offset for segment in new}


@pytest.mark.parametrize("change", ["truncated", "retained"])
def test_segments_that_left_the_log_meanwhile_are_not_replaced(make_place: MakePlace, change: str) -> None:
    place = make_place()
    log = fill(place)
    old, new, _ = compact(place, log)
    if change == "truncated":
        log.truncate_to(old[-1].base_offset)
    else:
        log.set_log_start_offset(old[1].base_offset)
        log.delete_old_segments(NOW_MS)
    before = read_all_offsets(log)

    assert not log.replace_segments(old, new, NOW_MS)

    assert read_all_offsets(log) == before
    assert place.names(".cleaned", ".swap") == []


def test_a_kill_after_any_call_leaves_the_old_or_the_new(make_place: MakePlace) -> None:
    outcomes = []
    is_done = False
    while not is_done:
        place = make_place()
        is_done, new_offsets = replace_killed(place, len(outcomes))
        place.restart()
        outcomes.append(check(place, new_offsets))

    assert outcomes == sorted(outcomes), "once the new segments would win, they do after every later call"
    assert outcomes.count(False) > 3 and outcomes.count(True) > 10


def test_a_recovery_that_is_killed_after_any_call_ends_where_it_would_have(make_place: MakePlace) -> None:
    """Killed in the middle of deleting and renaming, the second start must not take what is left for something else."""
    kills_count = 0
    for calls in range(0, 40, 2):
        place = make_place()
        is_done, new_offsets = replace_killed(place, calls)
        if is_done:
            break
        for recovery_calls in count():
            place.restart()
            place.disk.die_after(recovery_calls % 4 + 1)
            try:
                place.open_log(recovery_point=APPENDS)
                break
            except KilledError:
                kills_count += 1
        place.restart()
        check(place, new_offsets)
    assert kills_count > 30


def test_a_power_cut_after_any_call_leaves_the_old_or_the_new() -> None:
    outcomes = set()
    for seed in range(300):
        place = simulated_place(seed)
        assert place.simulated is not None
        _, new_offsets = replace_killed(place, seed % 30)
        place.simulated.cut_power()
        place.restart()
        outcomes.add(check(place, new_offsets))

    assert outcomes == {False, True}


def test_a_flush_taken_before_the_replacement_completes_after_it(make_place: MakePlace) -> None:
    place = make_place()
    log = place.open_log()
    for sequence in range(APPENDS):
        append_idempotent(log, sequence)
    log.set_high_watermark(log.log_end_offset)
    work = log.take_flush()
    assert work is not None
    old, new, new_offsets = compact(place, log)

    log.replace_segments(old, new, NOW_MS)
    work.run()
    log.flushed(work)

    assert log.recovery_point == APPENDS
    place.restart()
    assert check(place, new_offsets)


def test_a_full_recovery_takes_the_holes_of_compacted_segments_for_what_they_are(make_place: MakePlace) -> None:
    place = make_place()
    log = fill(place)
    old, new, new_offsets = compact(place, log)
    log.replace_segments(old, new, NOW_MS)
    append_idempotent(log, APPENDS)
    place.restart()

    log = place.open_log(recovery_point=0)

    assert read_all_offsets(log) == [*new_offsets, APPENDS]
