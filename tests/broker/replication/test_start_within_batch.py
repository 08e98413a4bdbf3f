"""A leader's log that starts within a batch, for records were deleted up to there: an empty follower takes the whole batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.replication.fetcher.follower_logs import CHECKPOINT_WAIT_MS
from broker.replication.partition import Partition
from protocol.messages.fetch import FetchRequest
from tests.broker.replication.fetcher.test_leader_fetcher import Exchange, asked, data, out_of_range


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    return Exchange(tmp_path)


def begin_at(exchange: Exchange, partition: Partition, offset: int) -> FetchRequest:
    """Its log begins anew there, where the leader's starts. Returns the Fetch that follows."""
    exchange.answer_offsets(out_of_range(exchange, partition), offset=offset + 100)
    exchange.answer_offsets(exchange.ask(), offset=offset)
    request: FetchRequest = exchange.ask()
    assert (offset, -1, offset) in asked(request)
    return request


def test_a_log_that_starts_within_a_batch_is_followed_with_the_whole_batch(exchange: Exchange) -> None:
    partition = exchange.follow(records=((0, 1), (1, 1)))
    request = begin_at(exchange, partition, 42)

    exchange.answer(request, (partition, data("40", "41", "42", "43", offset=40, epoch=2, high_watermark=44, log_start_offset=42)))

    log = partition.log
    assert (log.segments.first.base_offset, log.log_start_offset, log.high_watermark, log.log_end_offset) == (40, 42, 44, 44)
    assert [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries()] == [(2, 42)]
    assert (44, 2, 42) in asked(exchange.ask())


def test_a_batch_that_holds_the_start_waits_for_a_checkpoint_that_names_a_later_end(exchange: Exchange) -> None:
    partition = exchange.follow(records=((0, 1), (1, 1)))
    request = begin_at(exchange, partition, 42)
    answer = data("40", "41", "42", "43", offset=40, high_watermark=44, log_start_offset=42)
    exchange.events.may_cut = False

    exchange.answer(request, (partition, answer))

    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (42, 42)
    exchange.events.may_cut = True
    exchange.session = 0
    exchange.answer(exchange.ask())
    exchange.world.clock.advance(CHECKPOINT_WAIT_MS)
    exchange.answer(exchange.ask(), (partition, answer))
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (42, 44)


@pytest.mark.parametrize("values", [("39", "40", "41"), ()], ids=["a batch that ends at the start", "nothing"])
def test_an_empty_log_stays_where_it_is_for_anything_else(exchange: Exchange, values: tuple[str, ...]) -> None:
    partition = exchange.follow(records=((0, 1), (1, 1)))
    request = begin_at(exchange, partition, 42)

    exchange.answer(request, (partition, data(*values, offset=39, high_watermark=42, log_start_offset=42)))

    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (42, 42)


def test_a_log_that_has_records_does_not_begin_anew_for_a_batch_that_holds_its_end(exchange: Exchange) -> None:
    partition = exchange.follow(records=((0, 3), (1, 3)))

    exchange.answer(exchange.ask(), (partition, data("1", "2", offset=1, high_watermark=2)))

    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (0, 2)
