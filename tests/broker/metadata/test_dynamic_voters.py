"""A directory whose voters are in the log (kraft.version 1), as Kafka's `format --standalone` leaves it, is served and stays so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from broker.metadata.snapshot import list_snapshots
from broker.quorum.log import control_batch
from broker.quorum.voters import ReplicaKey, Voter, VoterSet
from config.server import ServerConfig
from protocol.messages.stored.control_records import KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord
from protocol.records import ControlRecordType
from protocol.uuids import ZERO_UUID
from storage.errors import StorageError
from storage.meta_properties import read_meta_properties
from tests.broker.metadata.room import CLUSTER_ID, DIRECTORY_ID, NODE_ID, Room, creation, make_room
from tests.support.kafka import java_tool

DIRECTORY = "__cluster_metadata-0"
ENDPOINTS = {"CONTROLLER": ("localhost", 9093)}
ME = Voter(ReplicaKey(NODE_ID, DIRECTORY_ID), ENDPOINTS, (0, 1))
OTHER = Voter(ReplicaKey(2, bytes(15) + b"\x09"), ENDPOINTS, (0, 1))


def format_with(root: Path, *voters: Voter) -> None:
    """What Formatter.writeDynamicQuorumSnapshot writes."""
    (root / DIRECTORY).mkdir()
    head: list[tuple[ControlRecordType, Any]] = [
        (ControlRecordType.SNAPSHOT_HEADER, SnapshotHeaderRecord()),
        (ControlRecordType.KRAFT_VERSION, KRaftVersionRecord(k_raft_version=1)),
        (ControlRecordType.KRAFT_VOTERS, VoterSet(voters).to_record()),
    ]
    footer = [(ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooterRecord())]
    content = control_batch(head, base_offset=0, epoch=0, now_ms=0) + control_batch(footer, base_offset=3, epoch=0, now_ms=0)
    (root / DIRECTORY / "00000000000000000000-0000000000.checkpoint").write_bytes(content)


async def lead(root: Path, directory_id: bytes = DIRECTORY_ID, config: ServerConfig | None = None) -> Room:
    room = make_room(root, config, directory_id=directory_id)
    room.quorum.start()
    await room.quorum.caught_up()
    await room.local.wait_first_records_committed()
    await room.lifecycle.start(incarnation_id=bytes(15) + b"\x01", endpoints=(), log_dirs=[directory_id])
    return room


async def check_served(root: Path, directory_id: bytes) -> None:
    config = ServerConfig(
        metadata_log_max_record_bytes_between_snapshots=2_000, metadata_log_segment_bytes=1_000, metadata_max_retention_bytes=0
    )
    room = await lead(root, directory_id, config)
    voters = room.replica.raft.voters
    for number in range(40):
        await room.client.create_topics(creation(f"t{number}", 1, 1))
        while room.snapshots.is_writing:
            await asyncio.sleep(0)
    start_offset, features = room.log.start_offset, dict(room.cache.state.features)
    await room.close()
    vote = json.loads((root / DIRECTORY / "quorum-state").read_text())

    again = await lead(root, directory_id, config)

    assert voters.is_only_voter(ReplicaKey(NODE_ID, directory_id)) and "metadata.version" in features
    assert start_offset > 0 and len(list_snapshots(root / DIRECTORY)) == 1  # what formatting wrote is gone; our snapshots say it
    assert again.replica.raft.kraft_version == 1 and again.replica.raft.voters == voters
    assert (vote["data_version"], vote["leaderId"], vote["leaderEpoch"]) == (1, NODE_ID, 1)
    assert len(again.cache.topics) == 40
    await again.close()


async def test_the_voter_of_the_format_leads_and_the_voters_survive_snapshots(tmp_path: Path) -> None:
    format_with(tmp_path, ME)

    await check_served(tmp_path, DIRECTORY_ID)


async def test_a_directory_that_kafka_formatted_standalone_is_served(tmp_path: Path) -> None:
    data = tmp_path / "data"
    config = tmp_path / "server.properties"
    config.write_text(
        f"process.roles=broker,controller\nnode.id={NODE_ID}\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        f"listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\nlog.dirs={data}\n"
    )
    told = java_tool("kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID, "-c", str(config))
    assert told.returncode == 0, told.stderr
    identity = read_meta_properties(data)
    assert identity is not None and identity.directory_id is not None

    await check_served(data, identity.directory_id)


@pytest.mark.parametrize("voters", [(ME, OTHER), (OTHER,), (Voter(ReplicaKey(NODE_ID, bytes(15) + b"\x07"), ENDPOINTS, (0, 1)),)])
async def test_a_quorum_that_this_node_cannot_be_alone_is_refused(tmp_path: Path, voters: tuple[Voter, ...]) -> None:
    format_with(tmp_path, *voters)

    with pytest.raises(StorageError, match="voters are"):
        make_room(tmp_path)


async def test_static_voters_have_no_directory_id(tmp_path: Path) -> None:
    room = await lead(tmp_path, DIRECTORY_ID)

    assert [voter.key for voter in room.replica.raft.voters] == [ReplicaKey(NODE_ID, ZERO_UUID)]
    assert room.replica.raft.kraft_version == 0
