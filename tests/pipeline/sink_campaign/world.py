"""What the sink's campaign runs on, without Spark: a server, the topic that is copied, the copy, and what has to hold of it.

Rows are numbered: the source has key and value "n", the copy's values begin with it. librdkafka writes the source and reads the copy: the
judge shares no code with what it judges but for the list of open transactions.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from barnabas.spark.client.cluster import Cluster
from barnabas.spark.client.fetching import LATEST, Isolation, list_offsets
from barnabas.spark.client.transaction import ENDING_STATES, OPEN_STATES, list_open
from tests.clients.topics import create_topic
from tests.support.broker import BrokerProcess
from tests.support.kafka import SHORT_SESSION, KafkaServer
from tests.support.process import ServerProcess

SOURCE, COPY, SINK = "numbers", "copied-numbers", "copier"
PARTITIONS = 3
# Ids expire soon, so that a recovery meets decided transactions that the coordinator does not know any more.
SETTINGS = {
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}
OF_KAFKA = {**SHORT_SESSION, "transactional.id.expiration.ms": "20000"}
"""A killed Kafka needs some six seconds to start again. The ids of tasks that wait with an empty transaction must not expire meanwhile."""
CLUSTER_ID = "c2lua3MtY2FtcGFpZ24tMQ"
FLUSH_TIMEOUT_S = 60.0
READ_TIMEOUT_S = 60.0
NOTED_TIMEOUT_S = 60.0
ENDED_TIMEOUT_S = 20.0


def start_server(directory: Path, *, is_kafka: bool, transaction_version: int | None) -> ServerProcess:
    """Barnabas or Apache Kafka; None is the newest transaction.version."""
    feature = () if transaction_version is None else ("--feature", f"transaction.version={transaction_version}")
    if is_kafka:
        kafka = KafkaServer(directory, {**SETTINGS, **OF_KAFKA})
        kafka.format_arguments = feature
        return kafka.start()
    barnabas = BrokerProcess(directory, SETTINGS)
    if feature:
        barnabas.format(CLUSTER_ID, *feature)
    return barnabas.start()


class World:
    """The two topics of a server that runs. Owns the count of rows that were written, and what was read of the copy."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.rows_count = 0
        self.found: Counter[bytes] = Counter()
        """How often a reader of committed records has seen each row."""
        for topic in (SOURCE, COPY):
            create_topic(server, topic, partitions=PARTITIONS)
        self._producer = Producer({"bootstrap.servers": server.bootstrap, "enable.idempotence": True, "linger.ms": 1, "log_level": 0})
        self._consumer = Consumer(
            {
                "bootstrap.servers": server.bootstrap, "group.id": "judge", "isolation.level": "read_committed",
                "enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 10, "log_level": 0,
            }
        )  # fmt: skip
        self._consumer.assign([TopicPartition(COPY, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])

    def write(self, count: int) -> None:
        """So many more rows."""
        for number in range(self.rows_count, self.rows_count + count):
            self._producer.produce(SOURCE, key=b"%d" % number, value=b"%d" % number)
        self.rows_count += count
        assert self._producer.flush(FLUSH_TIMEOUT_S) == 0, "the source takes no rows"

    def source_ends(self) -> dict[str, int]:
        """By partition, as a query tells its progress."""
        return {str(number): end for number, end in self._ends(SOURCE).items()}

    def anomalies(self) -> list[str]:
        """What is wrong when a query has copied all rows, and no process of Spark is held back."""
        self._read()
        found = []
        wanted = {b"%d" % number for number in range(self.rows_count)}
        if missing := sorted(wanted - self.found.keys(), key=int):
            found.append(f"{len(missing)} rows are missing: {missing[:5]}")
        if doubled := sorted(row for row, count in self.found.items() if count > 1):
            found.append(f"{len(doubled)} rows are there twice: {doubled[:5]}")
        if strange := sorted(self.found.keys() - wanted):
            found.append(f"{len(strange)} rows were never written: {strange[:5]}")
        if left := self._open_transactions():
            found.append(f"{len(left)} transactions stay open: {left[:5]}")
        return found

    def await_progress(self, ends: dict[str, int]) -> None:
        """The query's group has these offsets: it is noted a moment after the batch. AssertionError if it is not."""
        places = [TopicPartition(SOURCE, number) for number in range(PARTITIONS)]
        consumer = Consumer({"bootstrap.servers": self.server.bootstrap, "group.id": SINK, "log_level": 0})
        deadline_s = time.monotonic() + NOTED_TIMEOUT_S
        try:
            while (noted := {str(each.partition): each.offset for each in consumer.committed(places, READ_TIMEOUT_S)}) != ends:
                assert time.monotonic() < deadline_s, f"the group has {noted} of an idle query, and the ends are {ends}"
                time.sleep(0.1)
        finally:
            consumer.close()

    def await_no_open_transaction(self) -> None:
        """They end by themselves, by their timeout. AssertionError if they do not."""
        assert not (left := self._open_transactions()), f"{left} do not time out"

    def kill_server(self) -> None:
        """kill -9. Apache Kafka only when all markers of ended transactions are written: it may lose them as it starts again, when their
        partitions have no leader for a moment (KAFKA-20734). AssertionError if they are not written soon."""
        if isinstance(self.server, KafkaServer):
            assert not (left := self._open_transactions(ENDING_STATES)), f"{left} have no markers"
        self.server.kill()

    def close(self) -> None:
        self._consumer.close()

    def _ends(self, topic: str) -> dict[int, int]:
        cluster = Cluster(self.server.bootstrap)
        try:
            return list_offsets(cluster, topic, list(range(PARTITIONS)), LATEST, Isolation.READ_COMMITTED)
        finally:
            cluster.close()

    def _read(self) -> None:
        """All that is committed now. An end of before is not that of now: librdkafka may have queued it long ago."""
        ends = self._ends(COPY)
        ended: set[int] = set()
        deadline_s = time.monotonic() + READ_TIMEOUT_S
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline_s, "the copy cannot be read"
            for message in self._consumer.consume(1000, 0.2):
                error = message.error()
                partition = message.partition()
                assert partition is not None
                if error is None:
                    ended.discard(partition)
                    self.found[(message.value() or b"").partition(b":")[0]] += 1
                elif error.code() == KafkaError._PARTITION_EOF and (message.offset() or 0) >= ends[partition]:
                    ended.add(partition)

    def _open_transactions(self, states: Sequence[str] = OPEN_STATES) -> list[str]:
        """Those of the sink that do not end by themselves: a commit's markers may take a moment."""
        cluster = Cluster(self.server.bootstrap)
        deadline_s = time.monotonic() + ENDED_TIMEOUT_S
        try:
            while True:
                left = list_open(cluster, f"{SINK}.", states)
                if not left or time.monotonic() > deadline_s:
                    return [each.transactional_id for each in left]
                time.sleep(0.1)
        finally:
            cluster.close()
