"""Three nodes that reach each other by TLS and SASL: records are replicated, sessions end and are begun again, and nothing acknowledged
is lost when a leader is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.support.cluster import Cluster
from tests.support.ports import HOST
from tests.support.secured import FILES, PASSWORD, USER, cluster_settings, scram_of_nodes

TOPIC = "secured"
RECORDS = 1_000


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_nothing_is_lost_with_a_killed_leader_and_sessions_that_end(tmp_path: Path, mechanism: str) -> None:
    settings = cluster_settings(tmp_path / "keys", mechanism, reauthenticate_ms=2_000)
    with Cluster(tmp_path, secure="SASL_SSL", settings=settings, format_words=scram_of_nodes()) as cluster:
        cluster.create_topic(TOPIC, partitions=1)
        client = client_of(cluster)
        acknowledged: list[bytes] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            value = message.value()
            assert value is not None
            acknowledged.append(value)

        producer = Producer({**client, "acks": "all", "enable.idempotence": True, "log_level": 0})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"%d" % number, on_delivery=delivered)
            if number == RECORDS // 2:
                assert producer.flush(60) == 0
                cluster.kill(cluster.partition(TOPIC).leader_id)
            producer.poll(0)
        assert producer.flush(60) == 0

        consumer = Consumer({**client, "group.id": "readers", "auto.offset.reset": "earliest", "log_level": 0})
        consumer.subscribe([TOPIC])
        read: list[bytes | None] = []
        while len(read) < RECORDS:
            messages = consumer.consume(RECORDS, timeout=30)
            assert messages, f"{len(read)} records came"
            read += [message.value() for message in messages if message.error() is None]
        consumer.close()

        assert read == acknowledged == [b"%d" % number for number in range(RECORDS)]
        logs = "".join(node.log_path.read_text() for node in cluster.nodes.values())
        assert PASSWORD not in logs


def client_of(cluster: Cluster) -> dict[str, str | int]:
    return {
        "bootstrap.servers": ",".join(f"{HOST}:{port}" for port in cluster.secure_ports.values()),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(FILES / "ca.pem"),
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
