"""Where a stream stands: an offset for each partition, with the topic's id, so that a topic that was made anew is seen.

As JSON: {"orders": {"id": "…", "offsets": {"0": 23, "1": 42}}}. An offset is that of the next record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..client.cluster import Cluster
from ..client.fetching import EARLIEST, LATEST, Isolation, list_offsets
from ..errors import BarnabasError, OptionError
from .options import Bound, SourceOptions

ROUNDED = 1


class DataLossError(BarnabasError):
    """Records that a query has yet to read are gone."""


class TopicOffsets(NamedTuple):
    topic_id: str
    offsets: dict[int, int]


Offsets = dict[str, TopicOffsets]


def to_json(offsets: Offsets) -> dict[str, Any]:
    return {
        topic: {"id": told.topic_id, "offsets": {str(number): offset for number, offset in sorted(told.offsets.items())}}
        for topic, told in sorted(offsets.items())
    }


def from_json(told: Mapping[str, Any]) -> Offsets:
    return {
        topic: TopicOffsets(each["id"], {int(number): offset for number, offset in each["offsets"].items()}) for topic, each in told.items()
    }


def starting_offsets(cluster: Cluster, options: SourceOptions, *, default: int) -> Offsets:
    """Where a query begins that has no progress. `default`: what startingOffsets is if it is not set."""
    bound = default if options.starting is None else options.starting
    return _resolve(cluster, options, "startingOffsets", bound, options.starting_ms)


def ending_offsets(cluster: Cluster, options: SourceOptions) -> Offsets:
    """Where a batch query ends."""
    return _resolve(cluster, options, "endingOffsets", options.ending, options.ending_ms)


def latest_offsets(cluster: Cluster, options: SourceOptions) -> Offsets:
    """The ends of all chosen partitions: the last stable offsets where only committed records are read."""
    return _resolve(cluster, options, "", LATEST, None)


def _resolve(cluster: Cluster, options: SourceOptions, key: str, bound: Bound, time_ms: int | None) -> Offsets:
    found: Offsets = {}
    for name, partitions in options.chosen(cluster).items():
        topic = cluster.topic(name)
        assert topic is not None
        if time_ms is not None:
            offsets = list_offsets(cluster, name, partitions, time_ms)
            if -1 in offsets.values():
                ends = _ends(cluster, options, name, [number for number, offset in offsets.items() if offset == -1])
                offsets |= ends
        elif isinstance(bound, int):
            offsets = _ends(cluster, options, name, partitions) if bound == LATEST else list_offsets(cluster, name, partitions, EARLIEST)
        else:
            offsets = _named(cluster, options, key, name, partitions, bound)
        found[name] = TopicOffsets(topic.topic_id.hex(), offsets)
    return found


def _ends(cluster: Cluster, options: SourceOptions, name: str, partitions: list[int]) -> dict[int, int]:
    return list_offsets(cluster, name, partitions, LATEST, options.isolation)


def _named(
    cluster: Cluster, options: SourceOptions, key: str, name: str, partitions: list[int], bound: dict[str, dict[int, int]]
) -> dict[int, int]:
    told = bound.get(name, {})
    missing = set(partitions) - told.keys()
    if missing or set(told) - set(partitions):
        raise OptionError(f"{key} has to have an offset for each partition of {name}, which are {', '.join(map(str, partitions))}")
    offsets = dict(told)
    for special in (EARLIEST, LATEST):
        asked = [number for number, offset in told.items() if offset == special]
        if asked:
            isolation = options.isolation if special == LATEST else Isolation.READ_UNCOMMITTED
            offsets |= list_offsets(cluster, name, asked, special, isolation)
    return offsets


def limited(start: Offsets, end: Offsets, offsets_max: int) -> Offsets:
    """`end`, but at most so many offsets after `start` in all; each partition gets its share of what there is, as in Spark's own source."""
    sizes = {
        (topic, number): max(offset - start[topic].offsets.get(number, 0), 0) if topic in start else offset
        for topic, told in end.items()
        for number, offset in told.offsets.items()
    }
    total = sum(sizes.values())
    if total <= offsets_max:
        return end
    found: Offsets = {}
    for topic, told in end.items():
        offsets = {}
        for number, offset in told.offsets.items():
            size = sizes[topic, number]
            share = size * offsets_max / total
            begun = offset - size
            offsets[number] = min(offset, begun + (max(int(share), ROUNDED) if size else 0))
        found[topic] = TopicOffsets(told.topic_id, offsets)
    return found
