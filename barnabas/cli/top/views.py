"""What `top` shows: brokers, topics and groups, as rows of two samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.cli.cluster_facts import INTERNAL, Partition, offsets
from barnabas.cli.connection import Connection
from barnabas.cli.errors import CommandError
from barnabas.cli.group.facts import describe_groups
from barnabas.cli.group.offsets import committed, group_ids, latest, total_lag
from barnabas.cli.group.states import states_of
from barnabas.cli.output import Column, byte_rate, human_bytes, rate, signed_rate, thousands
from barnabas.cli.rates import Sample, bytes_per_s, records_per_s

Row = dict[str, Any]


VIEWS: dict[str, tuple[Column, ...]] = {
    "brokers": (
        Column("id", "BROKER", is_number=True),
        Column("address", "ADDRESS"),
        Column("rack", "RACK"),
        Column("leaders", "LEADERS", is_number=True),
        Column("replicas", "REPLICAS", is_number=True),
        Column("out_of_sync", "OUT OF SYNC", is_number=True),
        Column("records_per_s", "RECORDS/S IN", rate, is_number=True),
    ),
    "topics": (
        Column("topic", "TOPIC"),
        Column("partitions", "PARTITIONS", is_number=True),
        Column("records_per_s", "RECORDS/S IN", rate, is_number=True),
        Column("bytes_per_s", "DISK", byte_rate, is_number=True),
        Column("size_bytes", "SIZE", human_bytes, is_number=True),
        Column("under_replicated", "UNDER-REPL", is_number=True),
        Column("without_leader", "NO LEADER", is_number=True),
    ),
    "groups": (
        Column("group", "GROUP"),
        Column("state", "STATE"),
        Column("members", "MEMBERS", is_number=True),
        Column("lag", "LAG", thousands, is_number=True),
        Column("lag_per_s", "LAG/S", signed_rate, is_number=True),
        Column("committed_per_s", "COMMITTED/S", rate, is_number=True),
    ),
}
SORTED_BY = {"brokers": "id", "topics": "records_per_s", "groups": "lag"}
"""At first."""


def brokers(before: Sample, after: Sample) -> list[Row]:
    partitions = [(name, each) for name, topic in after.metadata.topics.items() for each in topic.partitions.values()]
    return [
        {
            "id": broker.id,
            "address": f"{broker.host}:{broker.port}",
            "rack": getattr(broker, "rack", None),
            "leaders": sum(each.leader == broker.id for _, each in partitions),
            "replicas": sum(broker.id in each.replicas for _, each in partitions),
            "out_of_sync": sum(broker.id in {*each.replicas} - {*each.isrs} for _, each in partitions),
            "records_per_s": records_per_s(before, after, [(name, each.id) for name, each in partitions if each.leader == broker.id]),
        }
        for broker in after.metadata.brokers.values()
    ]


def topics(before: Sample, after: Sample, *, internal: bool) -> list[Row]:
    rows = []
    for name, topic in after.metadata.topics.items():
        if name in INTERNAL and not internal:
            continue
        own = [(name, index) for index in topic.partitions]
        rows.append(
            {
                "topic": name,
                "partitions": len(own),
                "records_per_s": records_per_s(before, after, own),
                "bytes_per_s": bytes_per_s(before, after, own),
                "size_bytes": None if after.sizes is None else sum(after.sizes.get(each, 0) for each in own),
                "under_replicated": sum(len(each.isrs) < len(each.replicas) for each in topic.partitions.values()),
                "without_leader": sum(each.leader < 0 for each in topic.partitions.values()),
            }
        )
    return rows


class Groups:
    """The groups at one moment; a request for each, since OffsetFetch of librdkafka asks for one."""

    def __init__(self, connection: Connection) -> None:
        names = group_ids(connection)
        self._described = describe_groups(connection, names)
        self._states = states_of(connection, self._described)
        self._offsets = {name: own for name, own in committed(connection, names).items() if not isinstance(own, CommandError)}
        known = {each for own in self._offsets.values() for each in own}
        self._ends = offsets(connection, sorted(known), latest())

    def lag(self, name: str) -> int | None:
        return total_lag(self._offsets[name], self._ends) if name in self._offsets else None

    def committed(self, name: str) -> Mapping[Partition, int]:
        return self._offsets.get(name, {})

    def rows(self, before: Groups, span_s: float) -> list[Row]:
        rows = []
        for name, group in self._described.items():
            lag, lag_before = self.lag(name), before.lag(name)
            earlier = before.committed(name)
            moved = sum(offset - earlier[each] for each, offset in self.committed(name).items() if each in earlier)
            rows.append(
                {
                    "group": name,
                    "state": self._states.get(name),
                    "members": None if isinstance(group, CommandError) else len(group.members),
                    "lag": lag,
                    "lag_per_s": None if lag is None or lag_before is None else (lag - lag_before) / span_s,
                    "committed_per_s": max(moved, 0) / span_s,
                }
            )
        return rows


def in_order(rows: list[Row], key: str, *, is_reversed: bool) -> list[Row]:
    """Numbers with the largest first, names ascending; what is not known comes last."""
    known = [row for row in rows if row[key] is not None]
    has_numbers = key != "id" and all(isinstance(row[key], int | float) for row in known)
    return sorted(known, key=lambda row: row[key], reverse=has_numbers != is_reversed) + [row for row in rows if row[key] is None]
