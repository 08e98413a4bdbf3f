"""Records and bytes a second of partitions, by what their ends and their sizes on disk were at two moments."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import OffsetSpec

from barnabas.cli.cluster_facts import Partition, offsets, partitions_of, sizes
from barnabas.cli.connection import Connection


@dataclass(frozen=True, slots=True)
class Sample:
    """`ends` are high watermarks, None where there is no leader; `sizes` are bytes of all replicas, None if a broker does not say."""

    at_s: float
    metadata: Any
    ends: Mapping[Partition, int | None]
    sizes: Mapping[Partition, int] | None


def sample(connection: Connection, topics: Iterable[str] | None = None) -> Sample:
    """Of these topics, or of all. Raises CommandError."""
    metadata = connection.metadata()
    chosen = {name: topic for name, topic in metadata.topics.items() if topics is None or name in topics}
    ends = offsets(connection, partitions_of(chosen), OffsetSpec.latest())
    return Sample(time.monotonic(), metadata, ends, sizes(connection, metadata.brokers))


def records_per_s(before: Sample, after: Sample, partitions: Iterable[Partition]) -> float | None:
    """None if the end of one is not known. A topic that was made anew meanwhile counts from 0."""
    total = 0
    for each in partitions:
        end, start = after.ends.get(each), before.ends.get(each, 0)
        if end is None or start is None:
            return None
        total += max(end - start, 0) if end >= start else end
    return total / _span_s(before, after)


def bytes_per_s(before: Sample, after: Sample, partitions: Iterable[Partition]) -> float | None:
    """On the disks of all replicas. What retention removes meanwhile is not seen: then it is 0."""
    if before.sizes is None or after.sizes is None:
        return None
    grown = sum(max(after.sizes.get(each, 0) - before.sizes.get(each, 0), 0) for each in partitions)
    return grown / _span_s(before, after)


def _span_s(before: Sample, after: Sample) -> float:
    return max(after.at_s - before.at_s, 1e-3)
