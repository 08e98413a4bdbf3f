"""FetchSessionCache: what a session remembers, answers and costs (KIP-227)."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from broker.network.context import ConnectionFacts, ListenerFacts
from broker.replication.fetch import fetch_session_cache
from broker.replication.fetch.fetch_data import DivergingEpoch, FetchIsolation, FetchTarget, PartitionRead
from broker.replication.fetch.fetch_session import ABANDONED_AGE_MS, EPOCH_MAX, PartitionKey, next_epoch
from broker.replication.fetch.fetch_session_cache import (
    ABANDONED_INTERVAL_MS,
    EVICTION_AGE_MS,
    FetchContext,
    FetchSessionCache,
    IncrementalFetchContext,
)
from protocol.errors import ErrorCode
from tests.support.clock import ManualClock


class Room:
    """A cache and its clock, and the two steps of a request."""

    def __init__(self, slots_max: int = 10) -> None:
        self.clock = ManualClock()
        self.cache = FetchSessionCache(slots_max, random.Random(1), self.clock)
        self.connection = ConnectionFacts(1, ListenerFacts("PLAINTEXT"), "host")

    def begin(
        self,
        session_id: int,
        epoch: int,
        *targets: FetchTarget,
        forgotten: Iterable[PartitionKey] = (),
        is_from_follower: bool = False,
    ) -> FetchContext | ErrorCode:
        return self.cache.new_context(
            session_id,
            epoch,
            list(targets),
            forgotten,
            self.connection,
            uses_topic_ids=False,
            is_privileged=is_from_follower,
            isolation=FetchIsolation.HIGH_WATERMARK,
        )

    def open(self, *indexes: int, is_from_follower: bool = False) -> int:
        """A new session's id, 0 when there is none."""
        asked = [target(index) for index in indexes]
        context = self.begin(0, 0, *asked, is_from_follower=is_from_follower)
        assert isinstance(context, FetchContext)
        context.answer([read(each) for each in asked])
        return context.session_id

    def go_on(self, session_id: int, epoch: int, *targets: FetchTarget) -> IncrementalFetchContext:
        context = self.begin(session_id, epoch, *targets)
        assert isinstance(context, IncrementalFetchContext)
        return context


def target(index: int) -> FetchTarget:
    return FetchTarget("a", index, 0, 1000)


def read(each: FetchTarget, *, high_watermark: int = 5, log_start_offset: int = 0, records: bytes = b"") -> PartitionRead:
    result = PartitionRead(each, ErrorCode.NONE, high_watermark, high_watermark, log_start_offset)
    result.records, result.size_bytes = records, len(records)
    return result


def indexes(reads: list[PartitionRead]) -> list[int]:
    return [each.target.partition for each in reads]


def test_incremental_answer_has_only_partitions_with_news() -> None:
    room = Room()
    context = room.go_on(room.open(0, 1, 2, 3, 4, 5), 1)
    nothing, records, moved, cut, failed, diverging = (read(each) for each in context.targets)
    records.records, records.size_bytes = b"batch", 5
    moved.high_watermark = 6
    cut.log_start_offset = 1
    failed.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    diverging.diverging_epoch = DivergingEpoch(0, 0)

    answer = context.answer([nothing, records, moved, cut, failed, diverging])

    assert indexes(answer) == [1, 2, 3, 4, 5]


def test_a_follower_that_had_to_cut_its_log_is_told_the_high_watermark_again() -> None:
    """It took nothing else from the answer that told it where."""
    room = Room()
    session_id = room.open(0)
    diverging = room.go_on(session_id, 1)
    cut = read(diverging.targets[0])
    cut.diverging_epoch = DivergingEpoch(0, 0)
    diverging.answer([cut])

    after = room.go_on(session_id, 2)
    answer = after.answer([read(after.targets[0])])

    assert indexes(answer) == [0]


def test_a_follower_that_follows_in_another_epoch_is_told_the_high_watermark_again() -> None:
    """It dropped the answer that it got for the epoch before."""
    room = Room()
    session_id = room.open(0, 1, is_from_follower=True)
    moved_on = target(1)
    moved_on.current_leader_epoch = 7
    after = room.go_on(session_id, 1, moved_on)

    answer = after.answer([read(each) for each in after.targets])

    assert indexes(answer) == [1]


def test_partition_is_told_of_again_once_its_error_is_over() -> None:
    room = Room()
    session_id = room.open(0)
    context = room.go_on(session_id, 1)
    context.answer([PartitionRead(context.targets[0], ErrorCode.NOT_LEADER_OR_FOLLOWER)])

    context = room.go_on(session_id, 2)
    answer = context.answer([read(context.targets[0])])

    assert indexes(answer) == [0]


def test_partitions_with_records_go_to_the_end_of_the_line() -> None:
    room = Room()
    session_id = room.open(0, 1, 2)
    context = room.go_on(session_id, 1)
    context.answer([read(each, records=b"x" if each.partition == 0 else b"") for each in context.targets])

    context = room.go_on(session_id, 2)

    assert [each.partition for each in context.targets] == [1, 2, 0]


def test_request_that_waited_while_a_later_one_came_is_answered_with_the_epoch_error() -> None:
    room = Room()
    session_id = room.open(0)
    waiting = room.go_on(session_id, 1)
    room.go_on(session_id, 2)

    answer = waiting.answer([read(each, records=b"x") for each in waiting.targets])

    assert (waiting.error_code, waiting.session_id, answer) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id, [])


def test_full_fetch_ends_the_session_it_names() -> None:
    room = Room()
    session_id = room.open(0)

    room.begin(session_id, -1, target(0))

    assert room.begin(session_id, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epoch_wraps_to_one() -> None:
    assert (next_epoch(0), next_epoch(EPOCH_MAX)) == (1, 1)


def test_full_cache_gives_no_session_to_an_equal() -> None:
    room = Room(slots_max=1)
    kept = room.open(0)

    assert room.open(1) == 0
    assert room.cache.find(kept) is not None


def test_session_that_was_not_used_for_long_makes_room() -> None:
    room = Room(slots_max=2)
    stale, used = room.open(0), room.open(1)
    room.clock.advance(EVICTION_AGE_MS)
    room.go_on(used, 1)
    room.clock.advance(1)

    assert room.open(2) != 0
    assert room.cache.find(stale) is None
    assert room.cache.find(used) is not None
    assert room.cache.evicted_count == 1


@pytest.mark.parametrize(("size", "is_admitted"), [(1, False), (3, True)])
def test_older_session_in_use_yields_only_to_a_larger_one(size: int, is_admitted: bool) -> None:
    room = Room(slots_max=1)
    session_id = room.open(0, 1)
    room.clock.advance(EVICTION_AGE_MS + 1)
    room.go_on(session_id, 1)

    assert (room.open(*range(size)) != 0) is is_admitted


def test_follower_takes_a_consumers_place_at_once_and_never_the_other_way_round() -> None:
    room = Room(slots_max=1)
    consumer = room.open(0, 1, 2)

    follower = room.open(0, is_from_follower=True)
    room.clock.advance(EVICTION_AGE_MS)
    room.go_on(follower, 1)
    room.clock.advance(1)

    assert room.cache.find(consumer) is None
    assert room.open(0, 1, 2) == 0


@pytest.fixture
def ten_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more are cached, of all sessions together."""
    monkeypatch.setattr(fetch_session_cache, "CACHED_PARTITIONS_MAX", 10)


@pytest.mark.usefixtures("ten_partitions")
def test_sessions_keep_no_more_partitions_than_there_is_room_for() -> None:
    room = Room()
    room.open(*range(6))

    assert room.open(*range(5)) == 0
    assert room.open(*range(4)) != 0
    assert room.cache.partitions_count == 10


@pytest.mark.usefixtures("ten_partitions")
def test_larger_session_takes_the_place_of_as_few_older_ones_as_will_do() -> None:
    room = Room()
    smallest, small, middle = room.open(*range(2)), room.open(*range(3)), room.open(*range(5))
    room.clock.advance(EVICTION_AGE_MS + 1)
    for session_id in (smallest, small, middle):
        room.go_on(session_id, 1)

    assert room.open(*range(4)) != 0
    assert [room.cache.find(session_id) is None for session_id in (smallest, small, middle)] == [True, True, False]
    assert room.cache.partitions_count == 9


@pytest.mark.usefixtures("ten_partitions")
def test_nobody_is_evicted_for_a_session_that_does_not_fit_even_so() -> None:
    room = Room()
    small, large = room.open(*range(3)), room.open(*range(7))
    room.clock.advance(EVICTION_AGE_MS + 1)
    room.go_on(small, 1)
    room.go_on(large, 1)

    assert room.open(*range(5)) == 0
    assert room.cache.find(small) is not None


@pytest.mark.usefixtures("ten_partitions")
def test_session_that_grows_beyond_the_room_ends() -> None:
    room = Room()
    other, growing = room.open(*range(6)), room.open(0)

    assert isinstance(room.begin(growing, 1, *map(target, range(4))), FetchContext)
    assert room.begin(growing, 2, target(4)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    assert room.cache.find(growing) is None
    assert room.cache.find(other) is not None
    assert room.cache.partitions_count == 6


@pytest.mark.usefixtures("ten_partitions")
def test_partitions_of_a_session_that_ended_or_was_forgotten_make_room() -> None:
    room = Room()
    ended, shrinking = room.open(*range(5)), room.open(*range(5))

    room.begin(ended, -1)
    room.begin(shrinking, 1, forgotten=[("a", 0)])

    assert room.cache.partitions_count == 4
    assert room.open(*range(6)) != 0


def test_session_ends_a_while_after_its_connection() -> None:
    room = Room()
    gone, gone_too = room.open(*range(3)), room.open(0)
    room.connection.close()
    room.connection = ConnectionFacts(2, ListenerFacts("PLAINTEXT"), "host")
    kept = room.open(0)

    room.clock.advance(ABANDONED_AGE_MS - 1)
    assert room.cache.find(gone) is not None

    room.clock.advance(1 + ABANDONED_INTERVAL_MS)
    assert room.cache.find(gone) is room.cache.find(gone_too) is None
    assert room.cache.find(kept) is not None
    assert room.cache.partitions_count == 1


def test_session_that_went_on_by_another_connection_is_kept() -> None:
    room = Room()
    session_id = room.open(0)
    room.connection.close()
    room.connection = ConnectionFacts(2, ListenerFacts("PLAINTEXT"), "host")
    room.go_on(session_id, 1)

    room.clock.advance(ABANDONED_AGE_MS + ABANDONED_INTERVAL_MS)

    assert room.cache.find(session_id) is not None


def test_no_timer_runs_while_connections_are_open_or_when_all_sessions_have_ended() -> None:
    room = Room()
    room.open(0)
    assert not room.clock.pending_timers
    room.connection.close()
    assert room.clock.pending_timers

    room.clock.advance(ABANDONED_AGE_MS + 2 * ABANDONED_INTERVAL_MS)

    assert not room.clock.pending_timers
