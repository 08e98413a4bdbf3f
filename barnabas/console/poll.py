"""Asks a cluster for everything that the pages show of it, in as few requests as there can be.

Each time one Metadata, and of each broker one ListOffsets (ends), one ListGroups and OffsetFetch of many groups at once (KIP-709). Less
often the starts of logs and the log directories. Blocking; belongs to one thread.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barnabas.cli.cluster_facts import log_dirs
from barnabas.cli.connection import Connection
from barnabas.cli.errors import CommandError
from barnabas.console.facts import BrokerFacts, Directory, Group, Partition, PartitionFacts, Snapshot, Topic
from broker.cli.wire_client import WireClient
from protocol.errors import ErrorCode
from protocol.messages.list_groups import ListGroupsRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

EARLIEST, LATEST = -2, -1
CONSUMER = -1
"""As a replica's id in ListOffsets."""
GROUPS_AT_ONCE = 500
RARELY_S = 30.0
"""Between questions for log starts and log directories."""
READ_BY_GROUPS = ("consumer", "")
"""Protocol types of groups that commit offsets; a group that only commits has none."""


class Poll:
    """Owns a connection and what it asks for rarely. `ask` raises CommandError and OSError; after that it begins anew."""

    def __init__(self, connect: Callable[[], Connection], clock: Callable[[], float] = time.time) -> None:
        self._connect = connect
        self._clock = clock
        self._connection: Connection | None = None
        self._rare_at_s = -RARELY_S
        self._starts: dict[Partition, int] = {}
        self._directories: tuple[Directory, ...] = ()
        self._sizes: dict[tuple[Partition, int], int] | None = None
        self.sizes_at_s = 0.0

    def ask(self) -> Snapshot:
        try:
            return self._ask()
        except (CommandError, OSError):
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def replica_sizes(self) -> Mapping[tuple[Partition, int], int] | None:
        """Bytes of each replica, by its broker, as of `sizes_at_s`."""
        return self._sizes

    def _ask(self) -> Snapshot:
        began_s = self._clock()
        connection = self._connection = self._connection or self._connect()
        metadata = connection.wire().request(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        brokers = tuple(sorted(BrokerFacts(each.node_id, each.host, each.port, each.rack) for each in metadata.brokers))
        topics = {topic.name: _topic(topic) for topic in sorted(metadata.topics, key=lambda topic: str(topic.name)) if topic.name}
        names = {topic.topic_id: str(topic.name) for topic in metadata.topics}
        complaints: list[str] = []
        alive = {each.id for each in brokers}
        led = _by_leader(topics.values(), alive)
        ends = self._offsets(connection, led, LATEST, complaints)
        if began_s - self._rare_at_s >= RARELY_S or topics.keys() - {name for name, _ in self._starts}:
            self._starts = self._offsets(connection, led, EARLIEST, complaints)
            self._ask_directories(connection, alive, complaints)
            self._rare_at_s = began_s
        groups = {
            group.name: group
            for broker in sorted(alive)
            for group in _of_broker(broker, complaints, lambda broker=broker: self._groups(connection, broker, names, ends)) or ()  # type: ignore[misc]
        }
        return Snapshot(
            time_s=began_s,
            cluster_id=metadata.cluster_id or "",
            controller=metadata.controller_id,
            brokers=brokers,
            topics=topics,
            starts=self._starts,
            ends=ends,
            sizes=self._total_sizes(),
            directories=self._directories,
            groups=dict(sorted(groups.items())),
            duration_s=self._clock() - began_s,
            complaints=tuple(complaints),
        )

    def _offsets(self, connection: Connection, led: Mapping[int, list[Topic]], at: int, complaints: list[str]) -> dict[Partition, int]:
        found: dict[Partition, int] = {}
        for broker, topics in led.items():
            request = ListOffsetsRequest(
                replica_id=CONSUMER,
                topics=[
                    ListOffsetsTopic(
                        name=topic.name,
                        partitions=[ListOffsetsPartition(partition_index=each.number, timestamp=at) for each in topic.partitions],
                    )
                    for topic in topics
                ],
                timeout_ms=int(connection.timeout_s * 1_000),
            )
            answer = _of_broker(broker, complaints, lambda broker=broker, request=request: connection.wire(broker).request(request))  # type: ignore[misc]
            for topic in answer.topics if answer else ():
                for each in topic.partitions:
                    if each.error_code == ErrorCode.NONE and each.offset >= 0:
                        found[topic.name, each.partition_index] = each.offset
        return found

    def _groups(self, connection: Connection, broker: int, names: Mapping[Any, str], ends: Mapping[Partition, int]) -> list[Group]:
        """Those that this broker coordinates: it is the one to ask for their offsets."""
        wire = connection.wire(broker)
        answer = wire.request(ListGroupsRequest())
        if answer.error_code != ErrorCode.NONE:
            raise OSError(ErrorCode(answer.error_code).name)
        listed = {each.group_id: each for each in answer.groups if each.protocol_type in READ_BY_GROUPS and each.group_type != "share"}
        groups = []
        for name, offsets, code in _committed(wire, list(listed), names):
            own = listed[name]
            error = "" if code == ErrorCode.NONE else ErrorCode(code).name
            lags = [None if (end := ends.get(each)) is None else max(end - offset, 0) for each, offset in offsets.items()]
            lag = None if error or None in lags else sum(each or 0 for each in lags)
            groups.append(Group(name, own.group_state or "?", (own.group_type or "classic").lower(), broker, offsets, lag, error))
        return groups

    def _ask_directories(self, connection: Connection, alive: Iterable[int], complaints: list[str]) -> None:
        directories: list[Directory] = []
        sizes: dict[tuple[Partition, int], int] = {}
        knows_all = True
        for broker in sorted(alive):
            found = _of_broker(broker, complaints, lambda broker=broker: log_dirs(connection, broker))  # type: ignore[misc]
            knows_all = knows_all and found is not None
            for each in found or ():
                own = {
                    (topic.name, one.partition_index): one.partition_size
                    for topic in each.topics
                    for one in topic.partitions
                    if not one.is_future_key
                }
                sizes |= {(partition, broker): size_bytes for partition, size_bytes in own.items()}
                state = "offline" if each.error_code != ErrorCode.NONE else "cordoned" if each.is_cordoned else "online"
                usable, total = (None if count < 0 else count for count in (each.usable_bytes, each.total_bytes))
                directories.append(Directory(broker, each.log_dir, state, sum(own.values()), usable, total, len(own)))
        self._directories = tuple(directories)
        self._sizes = sizes if knows_all else None
        self.sizes_at_s = self._clock()

    def _total_sizes(self) -> dict[Partition, int] | None:
        if self._sizes is None:
            return None
        total: dict[Partition, int] = defaultdict(int)
        for (partition, _), size_bytes in self._sizes.items():
            total[partition] += size_bytes
        return total


def _topic(topic: Any) -> Topic:
    partitions = sorted(
        PartitionFacts(each.partition_index, each.leader_id, tuple(each.replica_nodes), tuple(each.isr_nodes), tuple(each.offline_replicas))
        for each in topic.partitions
    )
    return Topic(topic.name, topic.is_internal, tuple(partitions))


def _by_leader(topics: Iterable[Topic], alive: set[int]) -> dict[int, list[Topic]]:
    """For each broker the topics with only the partitions that it leads."""
    led: dict[int, list[Topic]] = defaultdict(list)
    for topic in topics:
        by_leader: dict[int, list[PartitionFacts]] = defaultdict(list)
        for each in topic.partitions:
            if each.leader in alive:
                by_leader[each.leader].append(each)
        for leader, own in by_leader.items():
            led[leader].append(Topic(topic.name, topic.is_internal, tuple(own)))
    return led


def _committed(wire: WireClient, groups: list[str], names: Mapping[Any, str]) -> Iterable[tuple[str, dict[Partition, int], int]]:
    """Each group with its offsets and an error's code."""
    if not wire.serves(OffsetFetchRequest, 8):
        for group in groups:
            answer = wire.request(OffsetFetchRequest(group_id=group, topics=None))
            yield group, _offsets_of(answer.topics, names), answer.error_code
        return
    for first in range(0, len(groups), GROUPS_AT_ONCE):
        asked = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups[first : first + GROUPS_AT_ONCE]]
        for each in wire.request(OffsetFetchRequest(groups=asked)).groups:
            yield each.group_id, _offsets_of(each.topics, names), each.error_code


def _offsets_of(topics: Iterable[Any], names: Mapping[Any, str]) -> dict[Partition, int]:
    """Version 10 names topics by their ids; a topic that is gone has no name."""
    return {
        (name, each.partition_index): each.committed_offset
        for topic in topics
        if (name := topic.name or names.get(getattr(topic, "topic_id", None), ""))
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE and each.committed_offset >= 0
    }


def _of_broker(broker: int, complaints: list[str], ask: Callable[[], Any]) -> Any:
    """What one broker answers; None if it does not, which is noted: the others are shown."""
    try:
        return ask()
    except (CommandError, OSError) as e:
        complaints.append(f"broker {broker}: {e}")
        return None
