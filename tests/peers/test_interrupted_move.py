"""A move between log directories that one kind of broker began and did not end: the other kind goes on with it on the same directories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from storage.files import find_future_partition
from tests.clients.adapters import ConfluentKafka
from tests.clients.topics import create_topic, eventually
from tests.support.broker import OnKafkasProperties
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.messages import Message
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

TOPIC = "orders"
COUNT = 600
VALUE_BYTES = 10_000
RATE_NAME = "replica.alter.log.dirs.io.max.bytes.per.second"
LOW_RATE = 1_000  # bytes a second: after the first chunk the move stands still
BROKER_ID = "1"


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[dict[str, ServerProcess]]:
    """Both kinds on the same two directories and port; none runs, and Kafka has made the topic."""
    kafka_jars()
    settings = {"log.dirs": f"{tmp_path / 'first'},{tmp_path / 'second'}"}
    kafka = KafkaServer(tmp_path / "kafka", settings)
    kafka.start()
    create_topic(kafka, TOPIC, config={"segment.bytes": "1048576"})
    messages = [Message(0, b"key %d" % number, b"%d " % number + bytes(VALUE_BYTES)) for number in range(COUNT)]
    ConfluentKafka().produce(kafka, TOPIC, messages)
    kafka.stop()
    barnabas = OnKafkasProperties(kafka.directory)
    barnabas.port = kafka.port
    made: dict[str, ServerProcess] = {"kafka": kafka, "barnabas": barnabas}
    yield made
    for broker in made.values():
        if broker.is_running:
            broker.kill()


def set_rate(broker: ServerProcess, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(RATE_NAME, value, incremental_operation=operation)
    resource = ConfigResource(ConfigResource.Type.BROKER, BROKER_ID, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def places(broker: ServerProcess) -> dict[Path, tuple[int, bool]]:
    """The log directories that have the partition: how many bytes of it, and whether as a copy."""
    with WireClient(broker.host, broker.port) as client:
        results = client.request(DescribeLogDirsRequest(topics=None), 4).results
    return {
        Path(each.log_dir): (partition.partition_size, partition.is_future_key)
        for each in results
        for topic in each.topics
        if topic.name == TOPIC
        for partition in topic.partitions
    }


def begin_move(broker: ServerProcess, target: Path) -> None:
    directory = AlterReplicaLogDir(path=str(target), topics=[AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])])
    with WireClient(broker.host, broker.port) as client:
        (topic,) = client.request(AlterReplicaLogDirsRequest(dirs=[directory]), 2).results
    assert topic.partitions[0].error_code == ErrorCode.NONE
    eventually(lambda: places(broker).get(target, (0, True))[0] > 0)


@pytest.mark.parametrize(
    ("first", "second", "is_clean"),
    [("kafka", "barnabas", True), ("kafka", "barnabas", False), ("barnabas", "kafka", False)],
    ids=["stopped Kafka", "killed Kafka", "killed Barnabas"],
)
def test_the_other_kind_goes_on(brokers: dict[str, ServerProcess], tmp_path: Path, first: str, second: str, is_clean: bool) -> None:
    broker = brokers[first].start()
    set_rate(broker, str(LOW_RATE))
    (start,) = places(broker)
    target = next(path for path in (tmp_path / "first", tmp_path / "second") if path != start)
    begin_move(broker, target)
    copied_bytes = places(broker)[target][0]
    assert copied_bytes < places(broker)[start][0]
    if is_clean:
        broker.stop()
    else:
        broker.kill()
    (copy,) = (path for path in target.iterdir() if find_future_partition(path.name) is not None)

    broker = brokers[second].start()
    resumed = places(broker)
    set_rate(broker, None)
    eventually(lambda: list(places(broker)) == [target] and not places(broker)[target][1])
    found = ConfluentKafka().consume(broker, TOPIC, COUNT)
    broker.stop()

    assert resumed[target][1] and resumed[target][0] >= copied_bytes, "what was copied already is not copied again"
    assert [each.offset for each in found] == list(range(COUNT))
    assert [each.message.value.split()[0] for each in found if each.message.value] == [b"%d" % number for number in range(COUNT)]
    assert not copy.exists() and (target / f"{TOPIC}-0").is_dir()
