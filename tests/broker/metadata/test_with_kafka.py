"""Against Apache Kafka 4.3.1 itself: its metadata directory is served here, its tool reads ours, its config answers are ours."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker.handlers.configs import describe_configs, incremental_alter_configs
from broker.handlers.topics import create_partitions, create_topics, delete_topics
from broker.metadata.cluster_state import ClusterState
from broker.metadata.snapshot import read_newest_snapshot
from config.loading import load_server_config
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.metadata.room import Room, context, creation, open_room
from tests.support.kafka import SHORT_SESSION, KafkaServer, java_tool
from tests.support.process import ServerProcess
from tests.support.turns import finished
from tests.support.wire import WireClient

OUR_OWN = "barnabas."
ATTEMPTS_MAX = 1000
SETTINGS = {
    **SHORT_SESSION,
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "log.retention.hours": "72",
    # How set values are told: as written, by synonym, hidden, internal, of one listener, unknown.
    "auto.create.topics.enable": "TRUE",
    "background.threads": " 12 ",
    "broker.rack": "r1",
    "controller.performance.sample.period.ms": "500",
    "log.cleaner.io.max.bytes.per.second": "1e9",
    "log.flush.scheduler.interval.ms": "60000",
    "log.roll.jitter.hours": "2",
    "queued.max.requests": "+400",
    "max.connections.per.ip.overrides": "127.0.0.1:500",
    "metric.reporters": "",
    "sasl.enabled.mechanisms": "PLAIN,  GSSAPI",
    "ssl.keystore.password": "secret",
    "ssl.truststore.type": "PKCS12",
    "socket.send.buffer.bytes": "102400",
    "listener.name.plaintext.max.connections": "700",
    "listener.name.plaintext.ssl.keystore.password": "secret",
    "listener.name.plaintext.ssl.keystore.location": "/keys",
    "listener.name.PLAINTEXT.ssl.protocol": "TLSv1.3",
    "rlmm.config.some": "1",
    "zookeeper.connect": "x",
}
OTHER_DEFAULTS = {"socket.listen.backlog.size", "socket.receive.buffer.bytes", "socket.send.buffer.bytes"}


@dataclass
class Recording:
    """What a real broker left and said: its directory after kill -9, after a clean stop, and its answers."""

    killed: Path
    stopped: Path
    answers: dict[str, Any]


def call(server: ServerProcess, version: int, request: Any) -> Any:
    """One request over a connection of its own."""
    with WireClient(server.host, server.port, timeout_s=30) as client:
        return client.request(request, version)


def creations() -> CreateTopicsRequest:
    configs = [CreatableTopicConfig(name="cleanup.policy", value="compact"), CreatableTopicConfig(name="retention.ms", value="77")]
    topics = [CreatableTopic(name="t", num_partitions=3, replication_factor=1, configs=configs)]
    topics += [CreatableTopic(name=f"more-{number}", num_partitions=20, replication_factor=1) for number in range(3)]
    return CreateTopicsRequest(topics=topics, timeout_ms=30_000)


def alteration() -> IncrementalAlterConfigsRequest:
    changes = (
        (2, "t", {"leader.replication.throttled.replicas": "0:1, 2:7", "follower.replication.throttled.replicas": "*"}),
        (4, "1", {"log.index.interval.bytes": "+8192", "leader.replication.throttled.rate": "3000000"}),
        (
            4,
            "",
            {
                "log.segment.bytes": "2097152",
                "leader.replication.throttled.rate": "1",
                "follower.replication.throttled.rate": "2",
                "replica.alter.log.dirs.io.max.bytes.per.second": "3",
            },
        ),
    )
    return IncrementalAlterConfigsRequest(resources=[_altered(kind, name, configs) for kind, name, configs in changes])


def _altered(kind: int, name: str, configs: dict[str, str | None], operation: int = 0) -> AlterConfigsResource:
    altered = [AlterableConfig(name=key, config_operation=operation, value=value) for key, value in configs.items()]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=altered)


RATE, REPLICAS = "leader.replication.throttled.rate", "leader.replication.throttled.replicas"
SET, DELETE, APPEND, SUBTRACT = range(4)
TRIED = (
    *((4, name, RATE, SET, value) for name in ("1", "") for value in ("0", " 5 ", "+5", "-1", "1.5", "many", "", "9223372036854775808")),
    *((4, "1", RATE, operation, "5") for operation in (DELETE, APPEND, SUBTRACT)),
    (4, "1", "follower.replication.throttled.rate", DELETE, None),
    *(
        (2, "t", REPLICAS, SET, value)
        for value in ("", "*", "0:1", " 0:1 , 1:1 ", "0:1,0:1", "none", "*,*", "0:1,*", "0", "0:1:2", "-1:1", "0:x", "0:1,", ",", "*:1")
    ),
    *((2, "t", REPLICAS, APPEND, value) for value in ("1:1", "0:1", "x")),
    *((2, "t", REPLICAS, SUBTRACT, value) for value in ("0:1", "5:5")),
    (2, "t", REPLICAS, DELETE, None),
)
"""Throttles that are tried and not set: kind of resource, its name, config, operation, value."""


def trial(kind: int, name: str, key: str, operation: int, value: str | None) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(resources=[_altered(kind, name, {key: value}, operation)], validate_only=True)


def description() -> DescribeConfigsRequest:
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        for kind, name in ((2, "t"), (4, "1"), (4, ""))
    ]
    return DescribeConfigsRequest(resources=resources, include_synonyms=True)


def describe_once_altered(server: ServerProcess) -> DescribeConfigsResponse:
    """Kafka's broker learns of an answered alteration a moment later, and takes it on in steps: the synonyms tell it before the value."""
    expected = {"log.segment.bytes": "2097152", "log.index.interval.bytes": "8192"}
    for _ in range(ATTEMPTS_MAX):
        described: DescribeConfigsResponse = call(server, 4, description())
        of_topic, of_broker, _of_all = ({config.name: config.value for config in result.configs} for result in described.results)
        if all(of_broker[key] == value == of_topic[key.removeprefix("log.")] for key, value in expected.items()):
            # A description made while the change went on would be old in its earlier parts.
            return call(server, 4, description())
    raise AssertionError("the altered configurations did not take effect")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    root = tmp_path_factory.mktemp("kafka")
    server = KafkaServer(root, SETTINGS)
    server.start()
    try:
        answers = {
            "create": call(server, 7, creations()),
            "alter": call(server, 1, alteration()),
            "describe": describe_once_altered(server),
            "tried": [call(server, 1, trial(*each)).responses[0] for each in TRIED],
        }
        server.kill()
        shutil.copytree(server.data_dir, root / "killed")
        server.start()
    finally:
        server.stop()
    shutil.copytree(server.data_dir, root / "stopped")
    return Recording(root / "killed", root / "stopped", answers)


async def _room_like(recording: Recording, tmp_path: Path, port: int = 0) -> Room:
    """A room of ours with the real broker's server.properties, brought to where the real one was."""
    room = await open_room(tmp_path, load_server_config(recording.killed.parent / "server.properties", {}, {}))
    await create_topics.build(room.services)(context(7), creations())
    await incremental_alter_configs.build(room.services)(context(1), alteration())
    return room


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_a_kafka_metadata_directory_is_read_and_led(recording: Recording, how: str) -> None:
    room = await open_room(getattr(recording, how))

    topic = room.cache.topics["t"]
    assert topic.topic_id == recording.answers["create"].topics[0].topic_id
    assert [(partition.leader, partition.isr) for partition in topic.partitions] == [(1, (1,))] * 3
    assert all(partition.leader_epoch > 0 for partition in topic.partitions)
    assert room.cache.log_config("t").retention_ms == 77
    assert room.cache.log_config("more-0").segment_bytes == 2_097_152
    await room.client.create_topics(creation("ours", 1, 1))
    await room.close()


async def test_a_kafka_snapshot_holds_what_its_log_tells(recording: Recording) -> None:
    snapshot = read_newest_snapshot(recording.stopped / "__cluster_metadata-0")
    assert snapshot is not None

    state = ClusterState()
    for record in snapshot.records:
        state.replay(record)

    assert set(state.topics) == {"t", "more-0", "more-1", "more-2"}
    assert state.topic_overrides("t") == {
        "cleanup.policy": "compact",
        "retention.ms": "77",
        "leader.replication.throttled.replicas": "0:1, 2:7",
        "follower.replication.throttled.replicas": "*",
    }


async def test_kafkas_tool_decodes_our_log(recording: Recording, tmp_path: Path) -> None:
    room = await _room_like(recording, tmp_path)
    await room.client.allocate_producer_ids()
    await room.close()
    again = await open_room(tmp_path)
    await again.write_snapshot()
    await again.close()

    directory = tmp_path / "__cluster_metadata-0"
    files = ",".join(str(path) for path in (directory / "00000000000000000000.log", *directory.glob("*.checkpoint")))
    dumped = java_tool("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", files)

    assert dumped.returncode == 0, dumped.stderr
    for kind in ("FEATURE_LEVEL", "REGISTER_BROKER", "TOPIC", "CONFIG", "PARTITION", "PARTITION_CHANGE", "PRODUCER_IDS"):
        assert f'"type":"{kind}_RECORD"' in dumped.stdout
    assert dumped.stdout.count("LeaderChange") == 2
    assert dumped.stdout.count("SnapshotHeader") == dumped.stdout.count("SnapshotFooter") == len(list(directory.glob("*.checkpoint"))) > 0
    assert "isvalid: false" not in dumped.stdout


async def test_described_configs_are_kafkas_field_by_field(recording: Recording, tmp_path: Path) -> None:
    room = await _room_like(recording, tmp_path)

    ours = finished(describe_configs.build(room.services)(context(4), description()))

    # ELR (KIP-966) makes Kafka set min.insync.replicas for all brokers; metadata.version 4.0-IV3 here does not.
    left_out = {"min.insync.replicas"} | OTHER_DEFAULTS
    for their_result, our_result in zip(recording.answers["describe"].results, ours.results, strict=True):
        theirs = {config.name: config for config in their_result.configs if config.name not in left_out}
        mine = {config.name: config for config in our_result.configs if config.name not in left_out}
        assert {name for name in mine if not name.startswith(OUR_OWN)} == set(theirs)
        for name, config in theirs.items():
            config.documentation = None
            assert mine[name] == config, name


async def test_throttles_are_accepted_and_refused_as_kafka_does(recording: Recording, tmp_path: Path) -> None:
    room = await _room_like(recording, tmp_path)
    alter: Any = incremental_alter_configs.build(room.services)

    for tried, theirs in zip(TRIED, recording.answers["tried"], strict=True):
        ours = (await alter(context(1), trial(*tried))).responses[0]
        assert ours.error_code == theirs.error_code, tried
        # Where Kafka's words leave out what is allowed, ours go on with it.
        assert (ours.error_message or "").startswith(theirs.error_message or ""), tried
        assert (ours.error_message is None) == (theirs.error_message is None), tried


async def test_created_topics_are_answered_as_kafka_answers(recording: Recording, tmp_path: Path) -> None:
    room = await open_room(tmp_path, load_server_config(recording.killed.parent / "server.properties", {}, {}))

    ours: Any = await create_topics.build(room.services)(context(7), creations())

    for theirs, mine in zip(recording.answers["create"].topics, ours.topics, strict=True):
        assert (mine.name, mine.error_code, mine.error_message) == (theirs.name, theirs.error_code, theirs.error_message)
        assert (mine.num_partitions, mine.replication_factor) == (theirs.num_partitions, theirs.replication_factor)
        expected = [config for config in theirs.configs if config.name != "min.insync.replicas"]
        kept = [config for config in mine.configs if not config.name.startswith(OUR_OWN) and config.name != "min.insync.replicas"]
        assert kept == expected


def test_every_admin_handler_has_an_error_response() -> None:
    for module in (create_topics, delete_topics, create_partitions, incremental_alter_configs, describe_configs):
        assert callable(module.error_response)
