"""Consumers read from a replica in their rack (KIP-392): whom a leader sends where, and what a follower serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.produce_fetch import fetch
from config.server import RACK_AWARE_SELECTOR
from protocol import codec
from protocol.errors import ErrorCode
from protocol.framing import skip_tags
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from protocol.templates import PreparedResponse
from tests.broker.replication.world import World, batch, completed, context, values

FETCH_KEY, FETCH_VERSION = 1, 13
NOWHERE = -1


class Racks:
    """Node 1 leads "t" from rack r1, nodes 2, 3 and 4 follow it from r2, r2 and r3. Three records are everywhere."""

    def __init__(self, directory: Path, *, leader: int = 1, isr: tuple[int, ...] = (1, 2, 3, 4), **settings: Any) -> None:
        self.world = world = World(directory, **({"replica_selector_class": RACK_AWARE_SELECTOR} | settings))
        for node_id, rack in ((1, "r1"), (2, "r2"), (3, "r2"), (4, "r3")):
            world.register_broker(node_id, rack=rack)
        self.topic_id = world.create_topic("t", replicas=(1, 2, 3, 4), isr=isr, leader=leader)
        if leader == 1:
            world.produce("t", batch("x", "y", "z"))
            for node_id in isr[1:]:
                world.follower_fetch(node_id, "t", 3, epoch=0)
        self._handle = fetch.build(world.services())

    def outcome(self, rack: str, *, offset: int = 0, epoch: int = -1, version: int = FETCH_VERSION, **request: Any) -> Any:
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch)
        topic = FetchTopic(topic="t", topic_id=self.topic_id if version >= 13 else bytes(16), partitions=[asked])
        defaults: dict[str, Any] = {"topics": [topic], "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "rack_id": rack}
        return self._handle(context(FETCH_KEY, version), FetchRequest(**(defaults | request)))

    def fetch(self, rack: str, *, version: int = FETCH_VERSION, **request: Any) -> PartitionData:
        return only_partition(self.outcome(rack, version=version, **request), version)


def only_partition(outcome: Any, version: int = FETCH_VERSION) -> PartitionData:
    (topic,) = sent(outcome, version).responses
    (partition,) = topic.partitions
    return partition


def sent(outcome: Any, version: int = FETCH_VERSION) -> FetchResponse:
    """The answer as its client reads it; the usual one is made by a template."""
    response = completed(outcome)
    chunks = response.to_chunks(0) if isinstance(response, PreparedResponse) else None
    if chunks is None:
        assert isinstance(response, FetchResponse)
        return response
    data = b"".join(bytes(each) if isinstance(each, bytes | bytearray | memoryview) else each.read() for each in chunks)
    position = skip_tags(memoryview(data), 8) if version >= 12 else 8
    return codec.decode(FetchResponse, version, memoryview(bytearray(data)), position)[0]


def test_a_consumer_is_sent_to_the_replica_in_its_rack(tmp_path: Path) -> None:
    racks = Racks(tmp_path)

    answer = racks.fetch("r3")

    assert (answer.error_code, answer.preferred_read_replica) == (ErrorCode.NONE, 4)
    assert (answer.high_watermark, answer.log_start_offset, len(answer.records or b"")) == (3, 0, 0)


def test_of_several_in_the_rack_the_one_that_has_most_is_chosen(tmp_path: Path) -> None:
    racks = Racks(tmp_path)
    racks.world.produce("t", batch("more"))
    racks.world.follower_fetch(2, "t", 4, epoch=0)

    assert racks.fetch("r2").preferred_read_replica == 2

    racks.world.follower_fetch(3, "t", 4, epoch=0)
    racks.world.clock.advance(10)
    racks.world.follower_fetch(3, "t", 4, epoch=0)  # caught up later than 2

    assert racks.fetch("r2").preferred_read_replica == 3


@pytest.mark.parametrize("rack", ["r1", "r9", ""], ids=["the leader's rack", "no replica's rack", "no rack"])
def test_the_leader_serves_all_others(tmp_path: Path, rack: str) -> None:
    answer = Racks(tmp_path).fetch(rack)

    assert answer.preferred_read_replica == NOWHERE
    assert values(answer.records) == ["x", "y", "z"]


def test_nobody_is_sent_anywhere_without_a_selector(tmp_path: Path) -> None:
    assert values(Racks(tmp_path, replica_selector_class=None).fetch("r3").records) == ["x", "y", "z"]


def test_consumers_before_v11_cannot_be_sent(tmp_path: Path) -> None:
    answer = Racks(tmp_path).fetch("", version=10)

    assert answer.preferred_read_replica == NOWHERE
    assert values(answer.records) == ["x", "y", "z"]


def test_a_replica_outside_the_isr_serves_nobody(tmp_path: Path) -> None:
    racks = Racks(tmp_path, isr=(1, 2, 3))
    racks.world.follower_fetch(4, "t", 2, epoch=0)

    assert racks.fetch("r3").preferred_read_replica == NOWHERE


def test_a_replica_that_lacks_the_offset_serves_it_not(tmp_path: Path) -> None:
    racks = Racks(tmp_path)
    racks.world.produce("t", batch("more"))

    assert racks.fetch("r3", offset=4).preferred_read_replica == NOWHERE  # 4 has told of 3 records
    assert racks.fetch("r3", offset=3).preferred_read_replica == 4


def test_a_fenced_broker_serves_nobody(tmp_path: Path) -> None:
    racks = Racks(tmp_path)
    racks.world.register_broker(4, rack="r3", is_fenced=True)

    assert racks.fetch("r3").preferred_read_replica == NOWHERE


def test_a_wait_for_records_is_not_begun_but_sent_on(tmp_path: Path) -> None:
    """At the log's end as well, where a fetch without a rack would only be parked."""
    racks = Racks(tmp_path)

    assert racks.fetch("r3", offset=3, max_wait_ms=10_000).preferred_read_replica == 4
    assert racks.world.replica_manager.fetch_purgatory.size == 0


def test_an_incremental_answer_tells_it_too(tmp_path: Path) -> None:
    racks = Racks(tmp_path)
    session_id = sent(racks.outcome("r1", session_epoch=0)).session_id

    answer = racks.fetch("r3", offset=3, session_id=session_id, session_epoch=1)

    assert answer.preferred_read_replica == 4


def test_another_leader_epoch_is_told_first(tmp_path: Path) -> None:
    assert Racks(tmp_path).fetch("r3", epoch=7).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_follower_serves_what_it_knows_to_be_committed_and_wakes_who_waits_for_it(tmp_path: Path) -> None:
    racks = Racks(tmp_path, leader=2)
    partition = racks.world.partition("t")

    def bring(*texts: str, high_watermark: int) -> None:
        records = batch(*texts, base_offset=partition.log.log_end_offset, partition_leader_epoch=0) if texts else memoryview(bytearray())
        partition.append_as_follower(
            records,
            leader_epoch=0,
            fetch_offset=partition.log.log_end_offset,
            leader_high_watermark=high_watermark,
            leader_log_start_offset=0,
            now_ms=0,
        )

    bring("x", high_watermark=1)
    bring("y", high_watermark=1)
    assert racks.fetch("r1", offset=1).error_code == ErrorCode.NONE
    assert racks.fetch("r1", offset=3).error_code == ErrorCode.OFFSET_OUT_OF_RANGE  # beyond its end: the consumer asks the leader
    waiting = racks.outcome("r1", offset=1, max_wait_ms=10_000)
    assert not waiting.is_done

    bring("z", high_watermark=3)

    assert values(only_partition(waiting).records) == ["y", "z"]
