"""READ_COMMITTED reads of a log: what a client delivers of them is what was committed, whatever happened to the log's files.

The client is Java's: it takes the aborted transactions of a read by their first offsets, drops the batches of producers that have begun
one, and forgets a producer at its abort marker.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.records import (
    ControlRecordType,
    build_control_batch,
    encode_end_transaction_value,
    iterate_headers,
    read_control_type,
)
from storage import log_segments
from storage.compaction.selection import find_cleanable
from storage.file_slice import take_bytes
from storage.log import Log
from storage.log_opener import open_log as open_other_log
from storage.page_cache import ColdRead, not_waiting
from storage.transaction_index import STEP_ENTRIES, AbortedTransaction
from storage.validation import AppendOrigin
from tests.storage.compaction.logs import run
from tests.storage.conftest import NOW_MS, TOPIC_ID, OpenLog, append

PRODUCERS = 6
SETTINGS = {"segment_bytes": 700, "index_interval_bytes": 100, "cleanup_policy": ("compact", "delete"), "retention_ms": -1}


class History:
    """A log of batches with one record each, and beside it what every offset is: `batches` in the order of their offsets."""

    def __init__(self, reopen: Callable[..., Log], random_source: random.Random) -> None:
        self.reopen = reopen
        self.random = random_source
        self.log = reopen()
        self.batches: list[tuple[int, int | None, ControlRecordType | None]] = []  # (offset, producer or None, the marker's type)

    def open_transactions(self) -> dict[int, int]:
        """Producer → first offset."""
        found: dict[int, int] = {}
        for offset, producer_id, marker in self.batches:
            if marker is not None:
                found.pop(producer_id or 0, None)
            elif producer_id is not None:
                found.setdefault(producer_id, offset)
        return found

    def committed(self, start_offset: int, end_offset: int) -> list[int]:
        """The offsets of records in the range that a consumer gets."""
        pending: dict[int, list[int]] = {}
        found: list[int] = []
        for offset, producer_id, marker in self.batches:
            if producer_id is None:
                found.append(offset)
            elif marker is None:
                pending.setdefault(producer_id, []).append(offset)
            else:
                of_transaction = pending.pop(producer_id, [])
                found += of_transaction if marker is ControlRecordType.COMMIT else []
        return sorted(offset for offset in found if start_offset <= offset < end_offset)

    def step(self) -> None:
        actions = [self.write] * 12 + [self.end] * 6 + [self.write_plainly] * 3
        actions += [self.roll, self.kill, self.restart, self.truncate, self.delete_records, self.compact]
        self.random.choice(actions)()
        self.log.set_high_watermark(self.log.log_end_offset)

    def write_plainly(self) -> None:
        append(self.log, key=str(self.log.log_end_offset).encode(), size=5)
        self.batches.append((self.log.log_end_offset - 1, None, None))

    def write(self) -> None:
        producer_id = self.random.randrange(1, PRODUCERS + 1)
        sequence = sum(each[1] == producer_id and each[2] is None for each in self.batches)
        key = str(self.log.log_end_offset).encode()
        append(self.log, key=key, size=5, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)
        self.batches.append((self.log.log_end_offset - 1, producer_id, None))

    def end(self) -> None:
        """Most transactions abort; one that has no records here gets a marker too."""
        control_type = self.random.choice([ControlRecordType.ABORT, ControlRecordType.ABORT, ControlRecordType.COMMIT])
        producer_id = self.random.randrange(1, PRODUCERS + 1)
        append_marker(self.log, control_type, producer_id=producer_id)
        self.batches.append((self.log.log_end_offset - 1, producer_id, control_type))

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def kill(self) -> None:
        self.log = self.reopen(log_start_offset=self.log.log_start_offset)

    def restart(self) -> None:
        self.log.close()
        self.log = self.reopen(log_start_offset=self.log.log_start_offset, recovery_point=self.log.log_end_offset, was_clean_stop=True)

    def truncate(self) -> None:
        """A follower loses what its leader has not: nothing that was compacted already."""
        end_offset = self.log.log_end_offset
        if self.log.log_start_offset == 0:
            least = max(end_offset - 30, self.log.clean_end_offset or 0)
            self.log.truncate_to(self.random.randrange(least, end_offset + 1), now_ms=NOW_MS)
        self.batches = [each for each in self.batches if each[0] < self.log.log_end_offset]

    def delete_records(self) -> None:
        if self.random.random() < 0.2:
            self.log.set_log_start_offset(self.random.randrange(self.log.log_start_offset, self.log.last_stable_offset + 1))
            self.log.delete_old_segments(NOW_MS)

    def compact(self) -> None:
        if find_cleanable(self.log, NOW_MS).cleanable_bytes:
            run(self.log)


def append_marker(log: Log, control_type: ControlRecordType, *, producer_id: int = 7) -> None:
    marker = build_control_batch(control_type, encode_end_transaction_value(0), timestamp=NOW_MS, producer_id=producer_id, producer_epoch=0)
    log.append_as_leader(memoryview(marker), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


def append_transactional(log: Log, sequence: int, *, producer_id: int = 7) -> None:
    append(log, size=5, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True)


def read_committed(log: Log, start_offset: int, max_bytes: int) -> tuple[list[int], int, int]:
    """One read: the offsets that a client delivers, where it goes on, and how many aborted transactions it was told."""
    records = log.read(start_offset, max_bytes=max_bytes, end_offset=log.last_stable_offset, minimum_one_batch=True)
    aborted = log.aborted_transactions(start_offset, records)
    data = take_bytes(records)
    waiting = sorted(aborted, key=lambda each: each.first_offset)
    dropped: set[int] = set()
    delivered: list[int] = []
    next_offset = log.last_stable_offset
    for position, header in iterate_headers(data):
        next_offset = header.next_offset
        while waiting and waiting[0].first_offset <= header.last_offset:
            dropped.add(waiting.pop(0).producer_id)
        if header.is_control:
            if read_control_type(data, position, header) is ControlRecordType.ABORT:
                dropped.discard(header.producer_id)
        elif header.records_count and not (header.is_transactional and header.producer_id in dropped):
            delivered.append(header.base_offset)
    return [offset for offset in delivered if offset >= start_offset], next_offset, len(aborted)


def read_to_end(log: Log, max_bytes: int) -> list[int]:
    offsets: list[int] = []
    offset = log.log_start_offset
    while offset < log.last_stable_offset:
        delivered, offset, _ = read_committed(log, offset, max_bytes)
        offsets += delivered
    return offsets


@pytest.mark.parametrize("seed", range(12))
def test_a_client_delivers_what_was_committed(open_log: OpenLog, seed: int) -> None:
    random_source = random.Random(seed)
    history = History(lambda **arguments: open_log(**SETTINGS, **arguments), random_source)

    for _ in range(150):
        history.step()
        log = history.log
        start_offset = random_source.randint(log.log_start_offset, log.last_stable_offset)
        if start_offset < log.last_stable_offset:
            delivered, next_offset, _ = read_committed(log, start_offset, random_source.choice([1, 300, 1 << 20]))
            assert delivered == history.committed(start_offset, next_offset)

    assert history.log.last_stable_offset == min([history.log.log_end_offset, *history.open_transactions().values()])
    assert read_to_end(history.log, 500) == history.committed(history.log.log_start_offset, history.log.last_stable_offset)


@pytest.mark.parametrize("seed", range(4))
def test_a_copy_and_a_follower_tell_the_same(open_log: OpenLog, tmp_path: Path, seed: int) -> None:
    """A copy to another directory appends what it reads, as a follower does."""
    random_source = random.Random(seed)
    history = History(lambda **arguments: open_log(**SETTINGS, **arguments), random_source)
    for _ in range(120):
        history.step()
    log = history.log
    other_directory = tmp_path / "other" / "t-0"
    other_directory.mkdir(parents=True)

    copy = open_other_log(other_directory, "t", 0, TOPIC_ID, log.config, now_ms=NOW_MS)
    if log.log_start_offset:
        copy.truncate_fully_and_start_at(log.log_start_offset)
    while copy.log_end_offset < log.log_end_offset:
        records = take_bytes(log.read(copy.log_end_offset, max_bytes=400, end_offset=log.log_end_offset, minimum_one_batch=True))
        first = next(iterate_headers(records))[1].base_offset
        if first < copy.log_end_offset:
            copy.truncate_fully_and_start_at(first)
        copy.append_as_follower(memoryview(records), now_ms=NOW_MS)
    copy.set_high_watermark(copy.log_end_offset)

    assert copy.last_stable_offset == log.last_stable_offset
    assert read_to_end(copy, 300) == read_to_end(log, 300) == history.committed(log.log_start_offset, log.last_stable_offset)


def test_a_read_that_begins_where_compaction_left_nothing_names_the_aborted_of_the_next_segment(open_log: OpenLog) -> None:
    """It returns batches of the segment behind the one of its start offset."""
    log = open_log(**SETTINGS)
    append(log, key=b"a", size=250)
    append(log, key=b"b", size=250)
    log.roll(NOW_MS)
    append(log, key=b"b", size=500)
    log.roll(NOW_MS)
    append_transactional(log, 0)
    log.set_high_watermark(3)
    run(log)
    append_marker(log, ControlRecordType.ABORT)
    log.truncate_to(2, now_ms=NOW_MS)
    append_transactional(log, 0)
    append(log, size=5)
    append_marker(log, ControlRecordType.ABORT)
    log.set_high_watermark(log.log_end_offset)
    assert len(log.segments) == 2, "else nothing of a later segment is read"

    assert read_committed(log, 1, 1 << 20) == ([3], 5, 1)


def test_only_what_the_bytes_can_contain_is_named(open_log: OpenLog) -> None:
    """Of a hundred transactions that are open around one small read, those with a record in it."""
    log = open_log()
    for producer_id in range(1, 101):
        append_transactional(log, 0, producer_id=producer_id)
    append(log, size=5)
    append_transactional(log, 1, producer_id=50)
    for producer_id in range(1, 101):
        append_marker(log, ControlRecordType.ABORT, producer_id=producer_id)
    log.set_high_watermark(log.log_end_offset)

    plain, _, plain_aborted = read_committed(log, 100, 1)
    transactional, _, transactional_aborted = read_committed(log, 101, 1)
    everything, _, all_aborted = read_committed(log, 0, 1 << 20)

    assert (plain, plain_aborted) == ([100], 0)
    assert (transactional, transactional_aborted) == ([], 1)
    assert (everything, all_aborted) == ([100], 100)


def test_a_read_names_no_transactions_behind_its_bytes(open_log: OpenLog) -> None:
    """The rest of its segment may have any number of them."""
    log = open_log()
    for sequence in range(50):
        append_transactional(log, sequence)
        append_marker(log, ControlRecordType.ABORT)
    log.set_high_watermark(log.log_end_offset)

    assert read_committed(log, 10, 1) == ([], 11, 1)
    assert read_committed(log, 10, 250)[2] == 2


def test_segments_without_an_abort_are_not_looked_at(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log()
    append_transactional(log, 0)
    append_marker(log, ControlRecordType.ABORT)
    for _ in range(20):
        log.roll(NOW_MS)
        append(log, size=5)
    log.set_high_watermark(log.log_end_offset)
    searched: list[int] = []
    index_class = type(log.segments.first.indexes.transaction_index)
    collect = index_class.collect

    def note(index, *arguments):  # type: ignore[no-untyped-def]
        searched.append(index.start_offset)
        return collect(index, *arguments)

    monkeypatch.setattr(index_class, "collect", note)
    delivered, _, aborted = read_committed(log, 3, 1 << 20)
    assert (delivered, aborted, searched) == ([3], 0, [])

    assert read_committed(log, 0, 1 << 20)[2] == 1
    assert searched == [0]


def test_a_long_index_is_read_in_steps_where_the_loop_may_not_wait(open_log: OpenLog) -> None:
    log = open_log()
    append_transactional(log, 0)
    for number in range(1, 2 * STEP_ENTRIES + 10):
        log.segments.note_aborted(AbortedTransaction(number, 10 * number, 10 * number + 5, 0))
    append_marker(log, ControlRecordType.COMMIT)
    log.segments.note_aborted(AbortedTransaction(7, 0, 10**9, 10**9))
    log.write_state()
    reopened = open_log(was_clean_stop=True, recovery_point=log.log_end_offset)
    reopened.set_high_watermark(reopened.log_end_offset)

    steps, aborted = read_in_steps(reopened)

    assert (steps, [each.producer_id for each in aborted]) == (2, [7])


def test_many_short_indexes_are_read_in_steps_too(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that stays open over many segments makes a first search look at all of them."""
    monkeypatch.setattr(log_segments, "STEP_ENTRIES", 5)
    log = open_log()
    append_transactional(log, 0)
    for producer_id in range(10, 22):
        log.roll(NOW_MS)
        append_transactional(log, 0, producer_id=producer_id)
        append_marker(log, ControlRecordType.ABORT, producer_id=producer_id)
    append_marker(log, ControlRecordType.ABORT)
    log.close()
    reopened = open_log(was_clean_stop=True, recovery_point=log.log_end_offset)
    reopened.set_high_watermark(reopened.log_end_offset)

    steps, aborted = read_in_steps(reopened)

    assert (steps, [each.producer_id for each in aborted]) == (2, [7])
    assert read_in_steps(reopened)[0] == 0


def read_in_steps(log: Log) -> tuple[int, list[AbortedTransaction]]:
    """The first batch's aborted transactions, read where the loop may not wait, and how often it had to let others run."""
    steps = 0
    while True:
        records = log.read(0, max_bytes=1, end_offset=log.last_stable_offset, minimum_one_batch=True)
        try:
            with not_waiting:
                return steps, log.aborted_transactions(0, records)
        except ColdRead as cold:
            cold.bring_in()
            steps += 1
        finally:
            take_bytes(records)
