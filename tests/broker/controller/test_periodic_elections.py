"""What a controller does for leaders by itself: at which intervals, and at once when a topic begins to allow unclean elections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.metadata.image import NO_LEADER
from config.server import ServerConfig
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.stored.metadata_records import PartitionRecord, TopicRecord
from tests.broker.controller.test_leadership import let_run
from tests.broker.metadata.room import DIRECTORY_ID, NODE_ID, Room, open_room, registration

TOPIC_ID = bytes(15) + b"\x05"


async def open_with_a_topic(path: Path, *, isr: list[int], leader: int, **settings: Any) -> Room:
    """Topic t of brokers 1, which is in this process, and 2, which is fenced."""
    room = await open_room(path, ServerConfig(offsets_topic_replication_factor=1, **settings))
    partition = PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[NODE_ID, 2], isr=isr, leader=leader, leader_epoch=0)
    partition.directories = [DIRECTORY_ID, bytes(15) + b"\x77"]
    records = [*registration(2, is_fenced=True), TopicRecord(name="t", topic_id=TOPIC_ID), partition]
    room.quorum.propose(room.quorum.epoch, records)
    room.controller.replay(records)
    await let_run()
    return room


def leader(room: Room) -> int:
    return room.cache.topics["t"].partitions[0].leader


async def test_preferred_replicas_lead_again_after_a_while(tmp_path: Path) -> None:
    room = await open_with_a_topic(tmp_path, isr=[2, NODE_ID], leader=2)

    room.clock.advance(299_000)
    await let_run()
    before = leader(room)
    room.clock.advance(1_000)
    await let_run()

    assert (before, leader(room)) == (2, NODE_ID)


async def test_leaders_stay_where_the_balance_is_switched_off(tmp_path: Path) -> None:
    room = await open_with_a_topic(tmp_path, isr=[2, NODE_ID], leader=2, auto_leader_rebalance_enable=False)

    room.clock.advance(900_000)
    await let_run()

    assert leader(room) == 2


async def test_a_partition_without_a_leader_gets_one_as_soon_as_its_topic_allows_an_unclean_one(tmp_path: Path) -> None:
    room = await open_with_a_topic(tmp_path, isr=[2], leader=NO_LEADER)
    config = AlterableConfig(name="unclean.leader.election.enable", config_operation=0, value="true")
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[config])

    await room.client.incremental_alter_configs(IncrementalAlterConfigsRequest(resources=[resource]))
    await let_run()

    assert leader(room) == NODE_ID


async def test_unclean_elections_are_tried_now_and_then(tmp_path: Path) -> None:
    room = await open_with_a_topic(tmp_path, isr=[2], leader=NO_LEADER, unclean_leader_election_enable=True)
    before = leader(room)

    room.clock.advance(300_000)
    await let_run()

    assert (before, leader(room)) == (NO_LEADER, NODE_ID)
