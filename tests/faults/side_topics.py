"""Topics beside the one that the clients of a chaos campaign write to: small, written to by faults only, and checked like the large one.

A topic of these may be deleted and made anew under its name, and its records deleted up to any offset, within batches too. Its history is
that of its present life; what was acknowledged from its log start on has to be there, once, at its offset, and in every replica.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import confluent_kafka

from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.faults.load import History, identity_of, payload, poll_operation
from tests.faults.replicas import differences
from tests.support.cluster import Cluster, metadata_request
from tests.support.history_checker import check

ADMIN_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 120.0
READ_TIMEOUT_S = 60.0
WAIT_INTERVAL_S = 0.02
PARTITION = 0
LINGER_MS = 100  # so that what is written together is one batch
CONFIG: Mapping[str, str] = {"min.insync.replicas": "1"}
"""A topic of these has as few replicas as two. One in sync is enough: no fault takes away what a process has written."""


class SideTopic:
    """One partition. Its records say which life of the topic they belong to. `config` is added to CONFIG."""

    def __init__(self, cluster: Cluster, name: str, config: Mapping[str, str]) -> None:
        self.name = name
        self._cluster = cluster
        self._config = {**CONFIG, **config}
        self._history = History()
        self._life = 0
        self._written = 0

    @property
    def is_made(self) -> bool:
        return self._life > 0

    @property
    def replicas(self) -> list[int]:
        return list(self._cluster.partition(self.name).replica_nodes)

    def make(self, replicas: Sequence[int]) -> None:
        """Begin the next life, on these brokers; returns once every running broker knows of it, and all replicas are in sync."""
        self._life += 1
        self._history = History()
        self._cluster.create_topic(self.name, assignment=[replicas], config=self._config)
        self._cluster.wait_known(self.name, lambda told: told.leader_id in replicas, f"all to know of {self.name}")
        self._wait_for_one_id()

    def delete(self) -> None:
        """End this life; returns once no running broker knows of it."""
        topic = DeleteTopicState(name=self.name)

        def is_gone() -> bool:
            answer = self._cluster.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=5_000), 6).responses[0]
            return answer.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) and self._is_unknown()

        self._cluster.wait_for(is_gone, f"{self.name} to be deleted")

    def write(self, count: int) -> None:
        """So many records in one batch; returns when they are acknowledged, or given up."""
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": LINGER_MS,
                "message.timeout.ms": 0,
                "retry.backoff.ms": 50,
                "socket.timeout.ms": 10_000,
                "log_level": 0,
            }
        )
        identities = [f"{self.name}.{self._life}:{self._written + number}" for number in range(count)]
        self._written += count
        for identity in identities:
            self._send(producer, identity)
        unanswered = producer.flush(WRITE_TIMEOUT_S)
        assert not unanswered, f"{unanswered} records of {self.name} are not answered in {WRITE_TIMEOUT_S} s\n{self._cluster.log_tails()}"

    def delete_records(self, before: int) -> None:
        """Returns once every replica that lives has deleted all before the offset."""
        topic = DeleteRecordsTopic(name=self.name, partitions=[DeleteRecordsPartition(partition_index=PARTITION, offset=before)])

        def is_done() -> bool:
            leader_id = self._cluster.partition(self.name).leader_id
            answer = self._cluster.ask_node(leader_id, DeleteRecordsRequest(topics=[topic], timeout_ms=5_000), 2).topics[0].partitions[0]
            return bool(answer.error_code == ErrorCode.NONE and answer.low_watermark >= before)

        self._cluster.wait_for(is_done, f"records of {self.name} before {before} to be deleted")

    def end_offset(self) -> int:
        """Behind the last acknowledged record of this life."""
        return self._history.acked_ends().get(PARTITION, 0)

    def check(self) -> dict[str, list[Any]]:
        """What is wrong with this life; all replicas are in sync."""
        if not self.is_made:
            return {}
        start, end, messages = self._read()
        read = poll_operation(f"{self.name}-reader", messages, in_group=False)
        history = self._history
        kept = [send for send in history.sends if (offset := send["m"][0][2]) is None or offset >= start]
        anomalies: dict[str, list[Any]] = check([*sorted(kept, key=lambda send: send["inv"]), read])
        if history.errors:
            anomalies["failed-send"] = list(history.errors)
        if [message.offset() for message in messages] != list(range(start, end)):
            anomalies["offset-gap"] = [(start, end, len(messages))]
        if foreign := [found for each in messages if not (found := identity_of(each.value())).startswith(f"{self.name}.{self._life}:")]:
            anomalies["foreign-record"] = foreign
        if unequal := differences(self._cluster, self.name, {PARTITION: end}):
            anomalies["unequal-replicas"] = unequal
        return {f"{self.name} {anomaly}": evidence for anomaly, evidence in anomalies.items()}

    def _send(self, producer: confluent_kafka.Producer, identity: str) -> None:
        history, invoked_ns = self._history, time.monotonic_ns()

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                history.errors.append(f"{identity}: {error}")
            offset = message.offset() if error is None else None
            history.add_send(self.name, PARTITION, identity, offset, invoked_ns, time.monotonic_ns())

        producer.produce(self.name, payload(identity), partition=PARTITION, on_delivery=delivered)

    def _read(self) -> tuple[int, int, list[Any]]:
        """The log start, the high watermark, and all messages between them."""
        with _reader(self._cluster) as consumer:
            place = confluent_kafka.TopicPartition(self.name, PARTITION)
            deadline_s = time.monotonic() + READ_TIMEOUT_S
            while True:
                start, end = consumer.get_watermark_offsets(place, timeout=ADMIN_TIMEOUT_S)
                if end >= self.end_offset() or time.monotonic() > deadline_s:
                    break  # a new leader's high watermark is behind until its followers have fetched
                time.sleep(WAIT_INTERVAL_S)
            consumer.assign([confluent_kafka.TopicPartition(self.name, PARTITION, start)])
            messages: list[Any] = []
            while len(messages) < end - start and time.monotonic() < deadline_s:
                polled = consumer.consume(end - start - len(messages), timeout=0.5)
                messages += [message for message in polled if message.error() is None]
        return start, end, messages

    def _is_unknown(self) -> bool:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=self.name)], allow_auto_topic_creation=False)
        return all(
            topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for node_id in self._cluster.brokers
            if node_id in self._cluster.running and not self._cluster.nodes[node_id].is_frozen
            for topic in self._cluster.ask_node(node_id, asked, 12).topics
        )

    def _wait_for_one_id(self) -> None:
        """A broker that is behind would take records for the life before."""

        def has_one() -> bool:
            brokers = [node_id for node_id in self._cluster.brokers if node_id in self._cluster.running]
            ids = {bytes(self._cluster.ask_node(each, metadata_request(self.name), 12).topics[0].topic_id) for each in brokers}
            return len(ids) == 1

        self._cluster.wait_for(has_one, f"one id of {self.name}")


@contextmanager
def _reader(cluster: Cluster) -> Any:
    """A consumer that joins no group."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "side-reader", "enable.auto.commit": False, "check.crcs": True, "log_level": 0}
    )
    try:
        yield consumer
    finally:
        consumer.close()
