from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.metadata.cluster_state import ClusterState
from broker.metadata.publisher import SNAPSHOT_RECORDS_MIN
from broker.metadata.snapshot import read_newest_snapshot
from broker.metadata.snapshot_writer import snapshot_batches, state_records, write_snapshot
from protocol.messages.stored import metadata_records as records
from tests.broker.metadata.room import Room, creation, make_room, open_room, registration

DIRECTORY = "__cluster_metadata-0"


async def _long_log(root: Path) -> Room:
    """A room whose next start finds enough to write a snapshot of."""
    room = await open_room(root)
    await room.client.create_topics(creation("t", SNAPSHOT_RECORDS_MIN, 1, retention_ms="7"))
    await room.client.allocate_producer_ids()
    return room


def _facts(room: Room) -> tuple[Any, ...]:
    state = room.cache.state
    leaders = {name: [partition.leader_epoch for partition in topic.partitions] for name, topic in state.topics.items()}
    return leaders, state.configs, state.features, state.next_producer_id, list(state.brokers)


async def test_a_long_log_is_replaced_by_a_snapshot_at_the_next_starts(tmp_path: Path) -> None:
    await _long_log(tmp_path)
    first = await open_room(tmp_path)

    second = await open_room(tmp_path)

    assert first.loaded_records_count > SNAPSHOT_RECORDS_MIN
    assert second.loaded_records_count <= SNAPSHOT_RECORDS_MIN + 10  # the first start's elections, and no more
    assert _facts(second)[1:] == _facts(first)[1:]
    assert _facts(second)[0] == {"t": [2] * SNAPSHOT_RECORDS_MIN}
    assert second.controller.state.topics.keys() == second.cache.topics.keys()


async def test_an_unfinished_snapshot_is_passed_over(tmp_path: Path) -> None:
    await _long_log(tmp_path)
    room = await open_room(tmp_path)
    before = _facts(room)
    await room.close()
    (newest,) = (tmp_path / DIRECTORY).glob("*.checkpoint")
    newest.write_bytes(newest.read_bytes()[:-20])

    after = await open_room(tmp_path)

    assert _facts(after)[1:] == before[1:]


async def test_records_that_are_only_stored_are_in_the_snapshot(tmp_path: Path) -> None:
    room = await _long_log(tmp_path)
    room.quorum.propose(room.quorum.epoch, [records.AccessControlEntryRecord(id=bytes(15) + b"\x01", principal="User:a")])
    await room.close()

    await (await open_room(tmp_path)).close()
    again = await open_room(tmp_path)

    assert again.loaded_records_count <= SNAPSHOT_RECORDS_MIN + 10  # the first start's elections: the rest was in a snapshot
    assert [acl.principal for acl in again.cache.state.acls.by_id.values()] == ["User:a"]


def test_a_state_survives_being_written_as_records() -> None:
    state = ClusterState()
    made: list[Any] = [*registration(2, rack="r"), records.FeatureLevelRecord(name="metadata.version", feature_level=25)]
    made += [records.TopicRecord(name="t", topic_id=bytes(15) + b"\x01")]
    made += [
        records.PartitionRecord(
            partition_id=0, topic_id=bytes(15) + b"\x01", replicas=[2, 3], isr=[], leader=-1, leader_epoch=4, partition_epoch=9,
            eligible_leader_replicas=[2], last_known_elr=[3], directories=[bytes(16), bytes(16)], leader_recovery_state=1,
        )
    ]  # fmt: skip
    for record in [*made, records.ConfigRecord(resource_type=32, resource_name="g", name="x", value="1")]:
        state.replay(record)

    copy = ClusterState()
    for record in state_records(state):
        copy.replay(record)

    assert (copy.topics, copy.configs, copy.features) == (state.topics, state.configs, state.features)
    assert (copy.brokers[2].rack, copy.brokers[2].is_fenced, copy.brokers[2].endpoints) == ("r", False, {"PLAINTEXT": ("host-2", 9092)})


async def test_a_snapshot_beyond_the_logs_end_takes_its_place(tmp_path: Path) -> None:
    """As after a copy of the snapshot alone: what follows gets the offsets after it."""
    (tmp_path / DIRECTORY).mkdir()
    made = [records.FeatureLevelRecord(name="metadata.version", feature_level=25)]
    write_snapshot(tmp_path / DIRECTORY, b"".join(snapshot_batches(made, epoch=3, last_timestamp=0, now_ms=0)), end_offset=500, epoch=3)

    room = make_room(tmp_path)
    room.quorum.start()
    await room.quorum.caught_up()

    assert room.cache.state.features == {"metadata.version": 25}
    assert (room.log.start_offset, room.quorum.epoch, room.quorum.end_offset) == (500, 4, 501)  # the leader's first record


@pytest.mark.parametrize("cut", range(1, 200, 23))
def test_every_cut_of_a_snapshot_is_passed_over(tmp_path: Path, cut: int) -> None:
    made = [records.FeatureLevelRecord(name="metadata.version", feature_level=25)]
    content = b"".join(snapshot_batches(made, epoch=3, last_timestamp=0, now_ms=0))
    write_snapshot(tmp_path, content[: len(content) - cut], end_offset=5, epoch=3)

    assert read_newest_snapshot(tmp_path) is None
