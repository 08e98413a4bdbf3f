"""LeaderFetcher, request by request: what it asks, and what it makes of each answer. The log and the partition are real."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from broker.observability.limited_log import LimitedLog
from broker.replication.fetcher.fetcher_control import FollowedPartition
from broker.replication.fetcher.follower_logs import CHECKPOINT_WAIT_MS, FollowerEvents
from broker.replication.fetcher.leader_fetcher import FetcherSettings, LeaderFetcher, logger
from broker.replication.fetcher.versions import leader_versions
from broker.replication.partition import Partition
from protocol import codec
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from storage.errors import StorageError
from storage.log import Log
from tests.broker.replication.world import World, batch
from tests.support.doubles import stands_for

BACKOFF_MS = 1_000
SESSION = 77


@stands_for(FollowerEvents, own=("told", "may_cut"))
class NotedEvents:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.may_cut = True

    def on_appended(self, partition: FollowedPartition) -> None:
        self.told.append(f"appended {partition!r}")

    def on_waiting_for_disk(self, partition: FollowedPartition) -> None:
        self.told.append(f"waiting {partition!r}")

    def may_truncate(self, partition: FollowedPartition, offset: int) -> bool:
        return self.may_cut

    def on_truncated(self, partition: FollowedPartition) -> None:
        self.told.append(f"truncated {partition!r}")

    def on_disk_failure(self, partition: FollowedPartition, error: StorageError) -> None:
        self.told.append(f"disk of {partition!r}")


class Exchange:
    """Broker 1 follows broker 2 in leader epoch 3; the test is broker 2."""

    def __init__(self, directory: Path) -> None:
        self.world = World(directory)
        self.world.clock.advance(1_000_000)
        self.events = NotedEvents()
        settings = FetcherSettings(
            node_id=1, max_wait_ms=500, min_bytes=1, response_max_bytes=10_000, partition_max_bytes=1_000, backoff_ms=BACKOFF_MS
        )
        self.fetcher = LeaderFetcher(
            settings, self.events, self.world.replica_manager.quotas.follower, LimitedLog(logger, self.world.clock)
        )
        self.session = SESSION

    def follow(self, name: str = "a", *, records: tuple[tuple[int, int], ...] = ()) -> Partition:
        """`records` are (offset, epoch) of one-record batches that its log has already."""
        self.world.create_topic(name, replicas=(1, 2, 3), leader=2, leader_epoch=3)
        partition = self.world.partition(name)
        for offset, epoch in records:
            partition.log.append_as_follower(batch("old", base_offset=offset, partition_leader_epoch=epoch), now_ms=0)
        self.fetcher.add(partition, partition._initial_fetch())
        return partition

    def ask(self, fetch_version: int = 17, list_offsets_version: int = 10) -> Any:
        request = self.fetcher.next_request(
            fetch_version=fetch_version, list_offsets_version=list_offsets_version, broker_epoch=9, now_ms=self.world.clock.monotonic_ms()
        )
        if request is not None:
            codec.encode(request, fetch_version if isinstance(request, FetchRequest) else list_offsets_version)  # it can be sent
        return request

    def answer(self, request: FetchRequest, *parts: tuple[Partition, PartitionData], error: ErrorCode = ErrorCode.NONE) -> None:
        topics = [FetchableTopicResponse(topic_id=partition.topic_id, partitions=[data]) for partition, data in parts]
        self._take(request, FetchResponse(error_code=error, session_id=self.session, responses=topics))

    def answer_offsets(self, request: ListOffsetsRequest, name: str = "a", **found: Any) -> None:
        found = {"partition_index": 0} | found
        topic = ListOffsetsTopicResponse(name=name, partitions=[ListOffsetsPartitionResponse(**found)])
        self._take(request, ListOffsetsResponse(topics=[topic]))

    def _take(self, request: Any, response: Any) -> None:
        for _ in self.fetcher.take_answer(request, response, now_ms=self.world.clock.monotonic_ms(), wall_ms=self.world.clock.now_ms()):
            pass


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    return Exchange(tmp_path)


def data(*values: str, offset: int = 0, epoch: int = 3, high_watermark: int = 0, **facts: Any) -> PartitionData:
    records = batch(*values, base_offset=offset, partition_leader_epoch=epoch) if values else memoryview(b"")
    return PartitionData(high_watermark=high_watermark, log_start_offset=facts.pop("log_start_offset", 0), records=records, **facts)


def diverging(epoch: int, end_offset: int, **facts: Any) -> PartitionData:
    return data(diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset), **facts)


def asked(request: Any) -> list[tuple[int, int, int]]:
    """Offset, last epoch and log start of each partition that a Fetch names."""
    return [(each.fetch_offset, each.last_fetched_epoch, each.log_start_offset) for topic in request.topics for each in topic.partitions]


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_the_first_fetch_names_every_partition_and_who_asks(exchange: Exchange) -> None:
    partition = exchange.follow(records=((0, 1), (1, 2)))

    request = exchange.ask()

    assert (request.session_id, request.session_epoch, request.replica_state.replica_id, request.replica_state.replica_epoch) == (
        0,
        0,
        1,
        9,
    )
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_000)
    (topic,) = request.topics
    assert topic.topic_id == partition.topic_id
    assert topic.partitions == [
        FetchPartition(
            partition=0, current_leader_epoch=3, fetch_offset=2, last_fetched_epoch=2, log_start_offset=0, partition_max_bytes=1_000
        )
    ]


def test_before_version_15_the_replica_is_named_as_such(exchange: Exchange) -> None:
    exchange.follow()

    assert exchange.ask(fetch_version=13).replica_id == 1


def test_later_fetches_name_what_changed(exchange: Exchange) -> None:
    quiet, busy = exchange.follow("a"), exchange.follow("b")
    first = exchange.ask()
    exchange.answer(first, (quiet, data()), (busy, data("x", high_watermark=1)))

    second = exchange.ask()
    exchange.answer(second)
    third = exchange.ask()

    assert (second.session_id, second.session_epoch, asked(second)) == (SESSION, 1, [(1, 3, 0)])
    assert (third.session_id, third.session_epoch, asked(third)) == (SESSION, 2, [])
    assert busy.log.high_watermark == 1


def test_fetch_after_fetch_of_one_partition_says_from_where_each_is_by_now(exchange: Exchange) -> None:
    quiet, busy = exchange.follow("a"), exchange.follow("b")
    exchange.answer(exchange.ask(), (quiet, data()), (busy, data("x")))
    said = []
    for offset in (1, 2, 3):
        request = exchange.ask()
        said.append((request.session_epoch, [topic.topic_id for topic in request.topics], asked(request)))
        starts_at = offset - 1  # the leader deletes records
        exchange.answer(request, (busy, data("y", offset=offset, high_watermark=offset, log_start_offset=starts_at)))

    idle = exchange.ask()
    exchange.answer(idle, (busy, data(log_start_offset=2)))
    exchange.fetcher.remove(quiet)
    without = exchange.ask()
    exchange.answer(without, (busy, data("z", offset=4)), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    assert said == [(epoch, [busy.topic_id], [(epoch, 3, max(0, epoch - 2))]) for epoch in (1, 2, 3)]
    assert (idle.session_epoch, asked(idle)) == (4, [(4, 3, 2)])
    assert (without.session_epoch, asked(without), [each.topic_id for each in without.forgotten_topics_data]) == (5, [], [quiet.topic_id])
    assert (exchange.ask().session_epoch, busy.log.log_end_offset) == (0, 4)


def test_a_removed_partition_is_forgotten_and_its_answer_dropped(exchange: Exchange) -> None:
    stays, goes = exchange.follow("a"), exchange.follow("b")
    request = exchange.ask()
    exchange.fetcher.remove(goes)
    exchange.answer(request, (stays, data()), (goes, data("x")))

    after = exchange.ask()

    assert goes.log.log_end_offset == 0
    assert [(each.topic_id, each.partitions) for each in after.forgotten_topics_data] == [(goes.topic_id, [0])]


def test_a_partition_of_a_newer_epoch_drops_the_answer_to_the_older_one(exchange: Exchange) -> None:
    partition = exchange.follow()
    request = exchange.ask()
    exchange.world.change_partition("a", leader=2)
    exchange.fetcher.remove(partition)
    exchange.fetcher.add(partition, partition._initial_fetch())

    exchange.answer(request, (partition, data("x")))

    assert partition.log.log_end_offset == 0


@pytest.mark.parametrize("error", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
def test_a_session_that_the_leader_lost_is_begun_anew_at_once(exchange: Exchange, error: ErrorCode) -> None:
    partition = exchange.follow()
    exchange.answer(exchange.ask(), (partition, data("x")))
    exchange.answer(exchange.ask(), error=error)

    request = exchange.ask()

    assert (request.session_epoch, asked(request)) == (0, [(1, 3, 0)])
    assert request.session_id == (0 if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND else SESSION)


def test_without_a_session_every_fetch_names_everything(exchange: Exchange) -> None:
    partition = exchange.follow()
    exchange.session = 0
    exchange.answer(exchange.ask(), (partition, data()))

    request = exchange.ask()

    assert (request.session_id, request.session_epoch, asked(request)) == (0, 0, [(0, -1, 0)])


def test_a_full_answer_that_lacks_a_partition_is_not_used(exchange: Exchange) -> None:
    partition, left_out = exchange.follow("a"), exchange.follow("b")

    exchange.answer(exchange.ask(), (partition, data("x")))

    assert (partition.log.log_end_offset, left_out.log.log_end_offset) == (0, 0)
    assert exchange.ask().session_epoch == 0


# -- errors and delays -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)  # fmt: skip
def test_a_partition_whose_fetch_failed_waits_alone(exchange: Exchange, error: ErrorCode) -> None:
    fails, goes_on = exchange.follow("a"), exchange.follow("b")
    exchange.answer(exchange.ask(), (fails, data(error_code=error)), (goes_on, data("x")))

    meanwhile = exchange.ask()
    exchange.answer(meanwhile)
    assert [each.topic_id for each in meanwhile.forgotten_topics_data] == [fails.topic_id]
    assert asked(meanwhile) == [(1, 3, 0)]
    exchange.world.clock.advance(BACKOFF_MS)

    assert asked(exchange.ask()) == [(0, -1, 0)]


def test_a_leader_that_does_not_know_yet_that_it_is_one_is_asked_again_soon_and_then_less_often(exchange: Exchange) -> None:
    """After a failover producers wait for this fetch: replica.fetch.backoff.ms is a second."""
    partition = exchange.follow()
    waits_ms = []
    for _ in range(10):
        exchange.answer(exchange.ask(), (partition, data(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH)))
        exchange.ask()
        now_ms = exchange.world.clock.monotonic_ms()
        waits_ms.append(exchange.fetcher.wakes_at_ms - now_ms)
        exchange.world.clock.advance(waits_ms[-1])

    assert waits_ms == [5, 10, 20, 40, 80, 160, 320, 640, BACKOFF_MS, BACKOFF_MS]
    exchange.answer(exchange.ask(), (partition, data("x")))
    exchange.answer(exchange.ask(), (partition, data(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH)))
    assert exchange.fetcher.wakes_at_ms == exchange.world.clock.monotonic_ms() + 5


def test_a_fetch_of_the_others_ends_when_a_partition_that_waits_is_due(exchange: Exchange) -> None:
    """Else a partition whose new leader is not ready yet, 5 ms, waits for the end of a long poll, half a second."""
    fails, goes_on = exchange.follow("a"), exchange.follow("b")
    exchange.answer(exchange.ask(), (fails, data(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH)), (goes_on, data("x")))

    meanwhile = exchange.ask()

    assert (asked(meanwhile), meanwhile.max_wait_ms) == ([(1, 3, 0)], 5)
    exchange.world.clock.advance(5)
    exchange.answer(meanwhile)
    assert exchange.ask().max_wait_ms == 500


def test_a_leader_that_does_not_answer_is_asked_again_soon_and_then_less_often(exchange: Exchange) -> None:
    """After the death of all brokers the first that are back wait for each other: the leader listens a moment after its election."""
    partition = exchange.follow()
    waits_ms = []
    for _ in range(10):
        assert exchange.ask().session_epoch == 0
        now_ms = exchange.world.clock.monotonic_ms()
        exchange.fetcher.handle_failure(now_ms)
        assert exchange.ask() is None
        waits_ms.append(exchange.fetcher.wakes_at_ms - now_ms)
        exchange.world.clock.advance(waits_ms[-1])

    assert waits_ms == [5, 10, 20, 40, 80, 160, 320, 640, BACKOFF_MS, BACKOFF_MS]
    exchange.answer(exchange.ask(), (partition, data("x")))
    exchange.ask()
    exchange.fetcher.handle_failure(exchange.world.clock.monotonic_ms())
    assert exchange.fetcher.wakes_at_ms == exchange.world.clock.monotonic_ms() + 5


def test_a_leader_that_refuses_a_fetch_as_a_whole_is_asked_nothing_for_the_back_off(exchange: Exchange) -> None:
    exchange.follow()
    now_ms = exchange.world.clock.monotonic_ms()
    exchange.answer(exchange.ask(), error=ErrorCode.UNKNOWN_SERVER_ERROR)

    assert exchange.ask() is None
    assert exchange.fetcher.wakes_at_ms == now_ms + BACKOFF_MS


def test_a_fenced_partition_waits_for_newer_metadata(exchange: Exchange) -> None:
    partition = exchange.follow()
    exchange.answer(exchange.ask(), (partition, data(error_code=ErrorCode.FENCED_LEADER_EPOCH)))
    exchange.world.clock.advance(10 * BACKOFF_MS)

    assert len(exchange.fetcher) == 0
    assert exchange.ask().forgotten_topics_data
    exchange.world.change_partition("a", leader=2)
    exchange.fetcher.add(partition, partition._initial_fetch())
    assert len(exchange.fetcher) == 1


def test_a_corrupt_batch_is_fetched_again_later(exchange: Exchange) -> None:
    partition = exchange.follow()
    corrupt = data("x")
    corrupt.records[-1] ^= 1

    exchange.answer(exchange.ask(), (partition, corrupt))
    exchange.world.clock.advance(BACKOFF_MS)

    assert partition.log.log_end_offset == 0
    assert len(exchange.fetcher) == 1


def fail_appends(patch: pytest.MonkeyPatch, number: int) -> None:
    def fail(*arguments: object, **named: object) -> None:
        raise StorageError("no new segment") from OSError(number, "refused")

    patch.setattr(Log, "append_as_follower", fail)


def test_a_partition_whose_disk_failed_is_fetched_no_more(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = exchange.follow()
    fail_appends(monkeypatch, errno.EIO)

    exchange.answer(exchange.ask(), (partition, data("x")))

    assert exchange.events.told == [f"disk of {partition!r}"]
    assert len(exchange.fetcher) == 0


def test_a_lack_of_descriptors_delays_a_partition(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes without any change of the metadata, which is what brings back a partition whose disk failed."""
    partition = exchange.follow()
    with monkeypatch.context() as patch:
        fail_appends(patch, errno.EMFILE)
        exchange.answer(exchange.ask(), (partition, data("x")))

    exchange.answer(exchange.ask())
    exchange.world.clock.advance(BACKOFF_MS)
    exchange.answer(exchange.ask(), (partition, data("x")))

    assert partition.log.log_end_offset == 1


def test_a_batch_of_a_later_epoch_than_the_fetch_is_left_out(exchange: Exchange) -> None:
    """KAFKA-18723: the leader was deposed and came back between the fetch and its answer."""
    partition = exchange.follow()

    exchange.answer(exchange.ask(), (partition, data("x", epoch=4)))

    assert partition.log.log_end_offset == 0


# -- truncation --------------------------------------------------------------------------------------------------------


def test_a_log_that_left_the_leader_s_is_cut_and_nothing_else_of_the_answer_counts(exchange: Exchange) -> None:
    partition = exchange.follow(records=((0, 1), (1, 2), (2, 2)))
    exchange.answer(exchange.ask(), (partition, diverging(2, 2, high_watermark=2)))

    request = exchange.ask()

    assert (partition.log.log_end_offset, partition.log.high_watermark, exchange.events.told) == (2, 0, ["truncated a-0"])
    assert (request.session_epoch, asked(request)) == (0, [(2, 2, 0)])  # a new session tells the high watermark again


def test_an_epoch_that_only_the_leader_knows_is_found_in_two_steps(exchange: Exchange) -> None:
    """KIP-279: our log is 0 0 3, the leader's 0 2 2."""
    partition = exchange.follow(records=((0, 0), (1, 0), (2, 3)))
    exchange.answer(exchange.ask(), (partition, diverging(2, 3)))
    first = exchange.ask()
    exchange.answer(first, (partition, diverging(0, 1)))

    assert asked(first) == [(2, 0, 0)]
    assert asked(exchange.ask()) == [(1, 0, 0)]


def test_a_log_without_epochs_is_cut_to_the_high_watermark_first(exchange: Exchange) -> None:
    partition = exchange.follow(records=((0, -1), (1, -1)))

    assert asked(exchange.ask()) == [(0, -1, 0)]
    assert partition.log.log_end_offset == 0


@pytest.mark.parametrize("way", ["diverging", "without epochs", "beyond the leader's end"])
def test_a_log_whose_checkpoint_is_written_first_is_cut_a_moment_later(exchange: Exchange, way: str) -> None:
    exchange.events.may_cut = False
    partition = exchange.follow(records=((0, -1), (1, -1)) if way == "without epochs" else ((0, 1), (1, 2), (2, 2)))

    def find_where_to_cut() -> None:
        if way == "diverging":
            exchange.answer(exchange.ask(), (partition, diverging(2, 2)))
        elif way == "beyond the leader's end":
            exchange.answer_offsets(out_of_range(exchange, partition), offset=2)
        else:
            exchange.ask()

    end_offset = partition.log.log_end_offset
    find_where_to_cut()
    assert partition.log.log_end_offset == end_offset
    exchange.events.may_cut = True
    exchange.world.clock.advance(CHECKPOINT_WAIT_MS)

    find_where_to_cut()

    assert partition.log.log_end_offset == (0 if way == "without epochs" else 2)


# -- out of range ------------------------------------------------------------------------------------------------------


def out_of_range(exchange: Exchange, partition: Partition) -> ListOffsetsRequest:
    exchange.answer(exchange.ask(), (partition, data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)))
    request = exchange.ask()
    assert isinstance(request, ListOffsetsRequest)
    return request


def timestamp(request: ListOffsetsRequest) -> int:
    assert request.replica_id == 1
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.current_leader_epoch) == ("a", 3)
    return partition.timestamp


def test_beyond_the_leader_s_end_it_is_cut_there(exchange: Exchange) -> None:
    partition = exchange.follow(records=((0, 1), (1, 1), (2, 1)))
    request = out_of_range(exchange, partition)
    assert timestamp(request) == -1

    exchange.answer_offsets(request, offset=2)

    assert partition.log.log_end_offset == 2
    assert (2, 1, 0) in asked(exchange.ask())


def test_before_the_leader_s_start_it_begins_anew_there(exchange: Exchange) -> None:
    partition = exchange.follow(records=((0, 1), (1, 1)))
    exchange.answer_offsets(out_of_range(exchange, partition), offset=50)
    request = exchange.ask()
    assert timestamp(request) == -4

    exchange.answer_offsets(request, offset=40)

    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (40, 40)
    assert (40, -1, 40) in asked(exchange.ask())


def test_within_the_leader_s_log_it_keeps_what_it_has_and_asks_again_later(exchange: Exchange) -> None:
    partition = exchange.follow(records=((0, 1), (1, 1)))
    exchange.answer_offsets(out_of_range(exchange, partition), offset=50)
    exchange.answer_offsets(exchange.ask(), offset=1)

    assert partition.log.log_end_offset == 2
    meanwhile = exchange.ask()
    assert meanwhile.forgotten_topics_data
    exchange.session = 0  # the leader ends a session that is empty
    exchange.answer(meanwhile)
    exchange.world.clock.advance(BACKOFF_MS)
    assert asked(exchange.ask()) == [(2, 1, 0)]


@pytest.mark.parametrize(("error", "is_given_up"), [(ErrorCode.FENCED_LEADER_EPOCH, True), (ErrorCode.NOT_LEADER_OR_FOLLOWER, False)])
def test_a_look_up_that_fails(exchange: Exchange, error: ErrorCode, is_given_up: bool) -> None:
    partition = exchange.follow(records=((0, 1),))

    exchange.answer_offsets(out_of_range(exchange, partition), error_code=error)

    assert len(exchange.fetcher) == (0 if is_given_up else 1)
    assert not isinstance(exchange.ask(), ListOffsetsRequest)


# -- versions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "fetch", "list_offsets"),
    [(7, 13, 7), (9, 14, 8), (10, 15, 8), (19, 16, 8), (21, 17, 9), (25, 17, 10), (27, 18, 10), (30, 18, 11)],
)
def test_metadata_version_pins_the_versions(level: int, fetch: int, list_offsets: int) -> None:
    assert leader_versions(level) == (fetch, list_offsets)
