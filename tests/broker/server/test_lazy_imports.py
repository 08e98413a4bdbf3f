"""What a broker alone does not load: its start is faster, and its memory smaller."""

from __future__ import annotations

import re
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.broker import BrokerProcess

RECORDS = 1_000
PARTITIONS = 3
TIMEOUT_S = 30.0

SPARED = {
    *("hashlib", "_hashlib"),
    *("argparse", "tempfile", "http.server", "multiprocessing"),
    "broker.replication.isr.isr_changes",
    "broker.controller.partition_control",
    *("broker.network.client", "broker.network.peer_protocol", "broker.network.peer_requests", "broker.network.reconnects"),
}
SPARED_FOLDERS = ("broker.cluster.", "broker.replication.fetcher.", "storage.compaction.")
NEEDED_ALONE = {
    *("broker.cluster.auto_create", "broker.cluster.broker_lifecycle", "broker.cluster.controller_client", "broker.cluster.producer_ids"),
    "broker.replication.fetcher.fetcher_control",
}
"""What a broker alone needs of these folders."""


class TalkativeBroker(BrokerProcess):
    """Its log names every module that is loaded, at any time."""

    def command(self) -> list[str]:
        interpreter, *rest = super().command()
        return [interpreter, "-v", *rest]

    def imported(self) -> set[str]:
        return set(re.findall(r"^import '([\w.]+)' #", self.log_path.read_text(), re.MULTILINE))


def test_a_broker_alone_does_not_load_what_other_brokers_need(tmp_path: Path) -> None:
    broker = TalkativeBroker(tmp_path, {"num.partitions": str(PARTITIONS)})
    broker.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce("load", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("load", partition, 0) for partition in range(PARTITIONS)])
    assert len(consumer.consume(RECORDS, TIMEOUT_S)) == RECORDS
    consumer.close()
    broker.stop()

    imported = broker.imported()

    assert {"uvloop", "broker.handlers.produce_fetch.produce", "broker.handlers.produce_fetch.fetch"} <= imported
    assert {name for name in imported if name in SPARED or name.startswith(SPARED_FOLDERS)} - NEEDED_ALONE == set()
