"""Two nodes of ours and one of Apache Kafka, and the reverse, reach each other by SASL_SSL, and controllers by certificates: what was
acknowledged is read by the clients of both kinds after each kind of leader was killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.support.cluster import BARNABAS, KAFKA, Cluster
from tests.support.ports import HOST
from tests.support.secured import FILES, PASSWORD, USER, cluster_settings, scram_of_nodes

TOPIC = "secured"
RECORDS = 300


@pytest.mark.parametrize(("kinds", "mechanism"), [((BARNABAS, KAFKA, BARNABAS), "SCRAM-SHA-256"), ((KAFKA, BARNABAS, KAFKA), "PLAIN")])
def test_nodes_of_both_kinds_log_in_to_each_other(tmp_path: Path, kinds: tuple[str, ...], mechanism: str) -> None:
    settings = cluster_settings(tmp_path / "keys", mechanism, reauthenticate_ms=5_000)
    words = ("--release-version", "4.0-IV3", *scram_of_nodes())
    with Cluster(tmp_path, kinds, secure="SASL_SSL", settings=settings, format_words=words) as cluster:
        cluster.create_topic(TOPIC, partitions=3)
        cluster.wait_in_sync(TOPIC)
        client: dict[str, str | int | bool] = {
            "bootstrap.servers": ",".join(f"{HOST}:{port}" for port in cluster.secure_ports.values()),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(FILES / "ca.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "log_level": 0,
        }
        producer = Producer({**client, "acks": "all", "enable.idempotence": True})
        for part, killed in enumerate((None, 1, 2)):
            if killed is not None:
                cluster.kill(killed)
            for number in range(RECORDS):
                producer.produce(TOPIC, b"%d" % (part * RECORDS + number), partition=number % 3)
            assert producer.flush(90) == 0, f"after node {killed}, of {kinds}, was killed"
            if killed is not None:
                cluster.start(killed)
                cluster.wait_in_sync(TOPIC)

        consumer = Consumer({**client, "group.id": "readers", "auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        read: list[bytes | None] = []
        while len(read) < 3 * RECORDS:
            messages = consumer.consume(RECORDS, timeout=60)
            assert messages, f"{len(read)} records came"
            read += [message.value() for message in messages if message.error() is None]
        consumer.close()

        assert sorted(read, key=lambda value: int(value or b"")) == [b"%d" % number for number in range(3 * RECORDS)]
