"""The rows of a DataFrame as what goes to Kafka: columns as the stock Kafka sink has them, targets, and a checksum.

| column | type | |
| --- | --- | --- |
| value | string or binary | needed |
| key | string or binary | |
| headers | array<struct<key: string, value: binary>> | |
| topic | string | needed unless the option `topic` is set, which counts before it |
| partition | int | by the hash of the key unless it is set |
| timestamp | timestamp | only with the option `timestamps=column`; null is the time of writing |

Source: org.apache.spark.sql.kafka010.KafkaWriter, KafkaRowWriter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from ..errors import BarnabasError
from ..records.arrays import fixed_array, nulls_of, numbers_of
from ..records.decode import HEADERS_TYPE
from ..records.encode import row_texts
from ..records.partitioner import partitions_of
from ..records.varints import Positions

TYPES = {"key": "string or binary", "value": "string or binary", "topic": "string", "partition": "int"}
TEXT_TYPES, BYTES_TYPES = ("string",), ("string", "binary")
ALLOWED = {"key": BYTES_TYPES, "value": BYTES_TYPES, "topic": TEXT_TYPES, "partition": ("int", "integer")}
TIME_TYPES = ("timestamp", "timestamp_ntz")
NO_TIME_MS = -1
"""Of a row without one: the time of writing is taken, which is no part of its checksum."""
HEADER_FIELDS = ("key", "value")


class RowError(BarnabasError):
    """A row, or the schema, is not what a sink takes."""


class Rows(NamedTuple):
    """Rows that go to one topic. `partition` has -1 where the key decides."""

    topic: str
    key: pa.Array
    value: pa.Array
    headers: pa.Array | None
    partition: Positions | None
    time_ms: Positions | None = None

    def take(self, places: Positions) -> Rows:
        chosen = fixed_array(places, pa.int64())
        headers = None if self.headers is None else self.headers.take(chosen)
        time_ms = None if self.time_ms is None else self.time_ms[places]
        return Rows(self.topic, self.key.take(chosen), self.value.take(chosen), headers, None, time_ms)

    def by_partition(self, partitions_count: int, *, of_null: int) -> list[tuple[int, Rows]]:
        """The rows of each partition, in their order. RowError for a partition that the topic does not have."""
        target = partitions_of(self.key, partitions_count, of_null=of_null)
        if self.partition is not None:
            is_set = self.partition >= 0
            target[is_set] = self.partition[is_set]
            if len(target) and target.max() >= partitions_count:
                raise RowError(f"topic {self.topic} has {partitions_count} partitions: there is no partition {target.max()}")
        found = np.unique(target)
        if len(found) == 1:
            return [(int(found[0]), self)]
        return [(int(partition), self.take(np.flatnonzero(target == partition))) for partition in found]

    def checksum(self) -> int:
        """The sum of the rows' hashes, modulo 2^64: the same for the same rows in any order."""
        total = sum(map(xxhash.xxh3_64_intdigest, row_texts(self.key, self.value, self.headers).to_pylist()))
        seed = xxhash.xxh3_64_intdigest(self.topic.encode())
        own = 0 if self.partition is None else int(self.partition.astype(np.uint64).sum())
        own += 0 if self.time_ms is None else int(self.time_ms.astype(np.uint64).sum())
        return (total + seed * len(self.key) + own) & (2**64 - 1)


def check_schema(fields: dict[str, str], topic: str | None, *, takes_timestamps: bool = False) -> None:
    """`fields` are the columns' names and types as Spark's simpleString. RowError if a needed column is missing or has another type."""
    if "value" not in fields:
        raise RowError("the data has no column 'value', which is what is written")
    if takes_timestamps and fields.get("timestamp") not in TIME_TYPES:
        raise RowError("the option timestamps is column, and the data has no column 'timestamp' of the type timestamp")
    if topic is None and "topic" not in fields:
        raise RowError("no topic: set the option 'topic', or give the data a column 'topic'")
    for name, allowed in ALLOWED.items():
        if name in fields and fields[name] not in allowed:
            raise RowError(f"the column '{name}' is {fields[name]}: it has to be {TYPES[name]}")
    if "headers" in fields and fields["headers"].replace(" ", "") != "array<struct<key:string,value:binary>>":
        raise RowError(f"the column 'headers' is {fields['headers']}: it has to be array<struct<key:string,value:binary>>")


def rows_of(batch: pa.RecordBatch, topic: str | None, *, takes_timestamps: bool = False) -> list[Rows]:
    """The rows of a record batch, by topic. RowError for a row without a topic, and for a negative partition."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    count = batch.num_rows
    key = columns["key"].cast(pa.binary()) if "key" in columns else pa.nulls(count, pa.binary())
    value = columns["value"].cast(pa.binary())
    headers = columns["headers"].cast(HEADERS_TYPE) if "headers" in columns else None
    partition = None
    if "partition" in columns:
        partition = numbers_of(columns["partition"], 0)
        if len(partition) and partition.min() < 0:
            raise RowError("a row has a negative partition")
        partition[nulls_of(columns["partition"])] = -1
    time_ms = _times_ms(columns["timestamp"]) if takes_timestamps else None
    if topic is not None:
        return [Rows(topic, key, value, headers, partition, time_ms)]
    topics = columns["topic"]
    if topics.null_count:
        raise RowError("a row has no topic: its column 'topic' is null, and the option 'topic' is not set")
    whole = Rows("", key, value, headers, partition, time_ms)
    found = []
    for each in topics.unique().to_pylist():
        places = np.flatnonzero(np.asarray(pc.equal(topics, each)))
        part = whole.take(places)
        found.append(part._replace(topic=each, partition=None if partition is None else partition[places]))
    return found


def _times_ms(column: pa.Array) -> Positions:
    """Milliseconds since 1970, rounded down; NO_TIME_MS for null."""
    micros = column.cast(pa.timestamp("us")).cast(pa.int64())
    return np.where(nulls_of(column), NO_TIME_MS, numbers_of(micros, 0) // 1000)
