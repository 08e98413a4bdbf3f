"""Compaction and DeleteRecords where there are replicas: each compacts by itself, and a deletion waits for all of them."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient

from protocol.records import iterate_headers, iterate_records
from storage.checkpoint import read_offset_checkpoint
from tests.support.cluster import Cluster
from tests.support.process import ServerProcess

RECORDS = 2000
KEYS = 40
TIMEOUT_S = 60
SETTINGS = {"log.cleaner.backoff.ms": "100", "replica.high.watermark.checkpoint.interval.ms": "100", "file.delete.delay.ms": "100"}
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "20000"}


def produce(cluster: Cluster, topic: str, count: int) -> dict[bytes, bytes]:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "batch.num.messages": 10})
    values = {}
    for number in range(count):
        key, value = b"key-%d" % (number % KEYS), b"%d " % number * 10
        producer.produce(topic, value, key, partition=0)
        values[key] = value
    assert producer.flush(TIMEOUT_S) == 0
    return values


def clean_end(node: ServerProcess, topic: str) -> int:
    return read_offset_checkpoint(node.data_dir / "cleaner-offset-checkpoint").get((topic, 0), 0)


def on_disk(node: ServerProcess, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    found = []
    for path in sorted((node.data_dir / f"{topic}-0").glob("*.log")):
        log = path.read_bytes()
        found += [(each.key, each.value) for position, _ in iterate_headers(log) for each in iterate_records(log, position)]
    return found


def test_each_replica_compacts_and_a_new_leader_has_every_key(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings=SETTINGS) as cluster:
        cluster.create_topic("a", config=COMPACTED)
        values = produce(cluster, "a", RECORDS)
        cluster.wait_for(lambda: all(clean_end(node, "a") > RECORDS // 2 for node in cluster.nodes.values()), "all to compact")
        leader = cluster.partition("a").leader_id

        cluster.kill(leader)
        cluster.wait_known("a", lambda partition: partition.leader_id not in (leader, -1), "another leader")
        cluster.wait_readable("a", RECORDS)
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
        )
        consumer.assign([confluent_kafka.TopicPartition("a", 0, 0)])
        read = {}
        while (message := consumer.poll(TIMEOUT_S)) is not None and message.error() is None:
            read[message.key()] = message.value()
        consumer.close()

        assert read == values
        for node in cluster.nodes.values():  # one that runs may be about to replace its segments
            cluster.wait_for(lambda node=node: len(on_disk(node, "a")) < RECORDS, "a smaller log")  # type: ignore[misc]
            cluster.wait_for(lambda node=node: dict(on_disk(node, "a")) == values, "every key")  # type: ignore[misc]


def test_a_deletion_of_records_is_answered_when_every_replica_has_made_it(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings={**SETTINGS, "log.flush.start.offset.checkpoint.interval.ms": "100"}) as cluster:
        cluster.create_topic("a")
        produce(cluster, "a", 100)
        partition = confluent_kafka.TopicPartition("a", 0, 42)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

        deleted = admin.delete_records([partition])[partition].result(TIMEOUT_S)

        assert deleted.low_watermark == 42
        starts = [node.data_dir / "log-start-offset-checkpoint" for node in cluster.nodes.values()]
        cluster.wait_for(lambda: [read_offset_checkpoint(path).get(("a", 0)) for path in starts] == [42, 42, 42], "all to note it")
