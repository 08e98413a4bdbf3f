"""Histories that a seed draws: whatever happens to a log while it is copied, the copy that takes its place is the same log."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from broker.replication.moves.log_copy import PIECE_BATCHES, PIECE_BYTES, find_piece_end
from protocol.records import read_header
from storage.leader_epochs import EpochEntry
from storage.log import Log
from storage.markers import TransactionMarker
from storage.validation import AppendOrigin
from storage.verification import TransactionAppend
from tests.broker.replication.moves.moving import FIRST, SECOND, Moving, batches_of
from tests.broker.replication.world import batch
from tests.support.clock import WALL_START_MS

SEEDS = 20
COLD_SHARE = 0.2
PRODUCER_ID = 9
TRANSACTIONAL_IDS = range(20, 24)


class History:
    """A log that is appended to, cut, and loses its front, as a follower's may, while it moves."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.moving = Moving(seed=seed)
        self.make_segments_small()
        self.moving.disk.cold_share = COLD_SHARE
        self.epoch = 1
        self.number = 0

    def make_segments_small(self) -> None:
        """Smaller than a topic can have them."""
        for log in self.moving.logs.all_logs():
            log.update_config(replace(log.config, segment_bytes=4_000))

    def append(self) -> None:
        log = self.moving.log
        for _ in range(self.draw.randrange(1, 30)):
            self.number += 1
            fields = {"producer_id": PRODUCER_ID, "producer_epoch": self.epoch, "base_sequence": 0} if self.draw.random() < 0.1 else {}
            value = f"{self.number} " + "v" * self.draw.randrange(200)
            self.epoch += bool(fields)
            log.append_as_leader(batch(value, **fields), leader_epoch=self.epoch, now_ms=WALL_START_MS)
            if self.draw.random() < 0.3:
                self.append_in_transaction()
        log.set_high_watermark(self.draw.randrange(log.high_watermark, log.log_end_offset + 1))

    def append_in_transaction(self) -> None:
        """A batch of a transaction, or the end of one, which most abort."""
        log, producer_id = self.moving.log, self.draw.choice(TRANSACTIONAL_IDS)
        if self.draw.random() < 0.3:
            markers = [TransactionMarker(producer_id, 0, 0, is_commit=self.draw.random() < 0.3)]
            log.append_markers(markers, leader_epoch=self.epoch, now_ms=WALL_START_MS)
            return
        log.append_as_leader(
            batch("in a transaction", producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True),
            leader_epoch=self.epoch,
            now_ms=WALL_START_MS,
            origin=AppendOrigin.COORDINATOR,
            transaction=TransactionAppend(None, supports_epoch_bump=False, is_required=False),
        )

    def cut(self) -> None:
        log = self.moving.log
        log.truncate_to(self.draw.randrange(log.log_start_offset, log.log_end_offset + 1))
        self.epoch += 1
        if self.draw.random() < 0.5:
            self.append()

    def begin_anew(self) -> None:
        log = self.moving.log
        log.truncate_fully_and_start_at(max(0, log.log_end_offset + self.draw.randrange(-50, 50)))
        self.epoch += 1

    def lose_front(self) -> None:
        log = self.moving.log
        log.set_log_start_offset(self.draw.randrange(log.log_start_offset, log.high_watermark + 1))
        log.delete_old_segments(WALL_START_MS)

    def live(self, steps: int) -> None:
        actions, weights = (self.append, self.cut, self.begin_anew, self.lose_front, self.moving.turn), (6, 2, 0.3, 2, 8)
        for _ in range(steps):
            self.draw.choices(actions, weights)[0]()


def epochs_after(offset: int, entries: list[EpochEntry]) -> list[EpochEntry]:
    return [entry for entry in entries if entry.start_offset > offset]


def aborted_of(log: Log) -> dict[tuple[int, int], int]:
    """Producer and marker of each aborted transaction that the log's indexes have → its first offset."""
    found = log.segments.find_aborted(log.segments.first.base_offset, log.log_end_offset)
    return {(each.producer_id, each.last_offset): each.first_offset for each in found}


def first_open_offset(log: Log) -> int | None:
    """Of the first transaction without a marker. That a marker is not replicated yet is forgotten where the producers' state is loaded."""
    log.producers.on_high_watermark_updated(log.log_end_offset)
    return log.producers.first_unstable_offset


@pytest.mark.long("simulated histories")
@pytest.mark.parametrize("end", ["moved", "killed"])
def test_the_copy_that_takes_over_is_the_same_log(end: str) -> None:
    for seed in range(SEEDS):
        history = History(seed)
        moving = history.moving
        history.live(20)
        moving.alter(SECOND if moving.place == FIRST else FIRST)
        history.live(20)
        if end == "killed":
            moving.kill()
            history.make_segments_small()
        history.live(10)
        log = moving.log
        batches, epochs = batches_of(log), log.leader_epochs.entries()
        state = log.log_end_offset, log.high_watermark
        aborted = aborted_of(log)
        moving.run()
        if moving.is_told:
            moving.accept()
            moving.run()

        new = moving.log
        assert new is not log, seed
        assert (new.log_end_offset, new.high_watermark) == state, seed
        # A kill without checkpoints brings deleted records back; the copy may know that they were.
        assert new.log_start_offset == log.log_start_offset or (end == "killed" and new.log_start_offset > log.log_start_offset), seed
        assert batches_of(new) == [each for each in batches if read_header(memoryview(each), 0).next_offset > new.log_start_offset], seed
        # Of what comes back the epochs are not known.
        certain_offset = max([new.log_start_offset, *(entry.start_offset for entry in epochs[:1])])
        assert epochs_after(certain_offset, new.leader_epochs.entries()) == epochs_after(certain_offset, epochs), seed
        headers = (read_header(memoryview(each), 0) for each in batches)
        last = [header.producer_epoch for header in headers if header.producer_id == PRODUCER_ID][-1:]
        assert not last or new.producers.producers[PRODUCER_ID].producer_epoch == last[0], seed
        # A transaction whose first records were deleted begins with the first that is left.
        expected = {end for end, first_offset in aborted.items() if first_offset >= new.log_start_offset}
        assert expected <= aborted_of(new).keys() <= aborted.keys(), seed
        unstable = {first_open_offset(log), first_open_offset(new)}
        if all(offset is None or offset >= new.log_start_offset for offset in unstable):
            assert len(unstable) == 1, seed


def test_a_piece_is_of_whole_batches_and_bounded_in_bytes_and_number() -> None:
    small, large = bytes(batch("x")), bytes(batch("x" * 2 * PIECE_BYTES))
    chunk = memoryview(small * (PIECE_BATCHES + 1) + large + small)

    first = find_piece_end(chunk, 0)
    second = find_piece_end(chunk, first)
    third = find_piece_end(chunk, second)

    assert first == len(small) * PIECE_BATCHES
    assert second == first + len(small)
    assert third == second + len(large)
    assert find_piece_end(chunk, third) == len(chunk)
