"""Spark, played by a test: it plans, runs tasks and commits, each with what another process would have."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from barnabas.spark.client.cluster import Cluster
from barnabas.spark.client.fetching import EARLIEST, LATEST, Isolation, RangeReader, list_offsets
from barnabas.spark.client.transaction import list_open
from barnabas.spark.records.decode import decode_columns
from barnabas.spark.sink import protocol
from barnabas.spark.sink.options import SinkOptions, read_options
from barnabas.spark.sink.protocol import Plan, Work, Written

QUERY = "5a1d7a2e-query"
PARTITIONS = 3


class Spark:
    """What Spark does with one sink. Each step gets its input pickled, as another process would."""

    def __init__(self, servers: str, topic: str, options: Mapping[str, str]) -> None:
        self.options: SinkOptions = read_options({"kafka.bootstrap.servers": servers, "topic": topic, "id": topic, **options})
        self.cluster = Cluster(self.options.servers, self.options.security)
        self.topic = topic
        self._attempts = 0

    def plan(self) -> Plan:
        return pickled(protocol.recover(self.options))

    def task(self, plan: Plan, batch: int, partition: int, values: list[str], *, query: str = QUERY) -> Written:
        self._attempts += 1
        work = Work(query, batch, partition, self._attempts)
        rows = [pa.record_batch({"key": pa.array(values), "value": pa.array(values)})] if values else []
        return pickled(protocol.write(self.options, plan, work, rows))

    def run(self, batch: int, rows: list[list[str]]) -> None:
        plan = self.plan()
        protocol.commit(self.options, batch, [self.task(plan, batch, number, values) for number, values in enumerate(rows)])

    def committed(self) -> list[str]:
        """All values that a reader of committed records sees, sorted."""
        self.cluster.refresh((self.topic,))
        found: list[str] = []
        partitions = list(range(PARTITIONS))
        starts = list_offsets(self.cluster, self.topic, partitions, EARLIEST)
        ends = list_offsets(self.cluster, self.topic, partitions, LATEST, Isolation.READ_COMMITTED)
        for number in partitions:
            reader = RangeReader(
                self.cluster, self.topic, number, start=starts[number], end=ends[number], isolation=Isolation.READ_COMMITTED
            )
            for payloads in reader:
                values = decode_columns(payloads, start_offset=starts[number], end_offset=ends[number]).value
                found += [value.decode() for value in values.to_pylist()]
        return sorted(found)

    def open_count(self) -> int:
        return len(list_open(self.cluster, f"{self.options.sink}."))


def pickled(message: Any) -> Any:
    return pickle.loads(pickle.dumps(message))
