"""The one table of the APIs that are served: key, versions, and where the messages are declared.

The versions are those of Apache Kafka 4.0 (JoinGroup from 0, as since 4.0.1); the declarations may reach further. Message modules are
imported at the first use of their API, so that a broker starts without them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_NEVER_FLEXIBLE = 32767


class Api:
    """One API. Versions are inclusive; `advertised_min_version` may be lower than what is served."""

    __slots__ = ("advertised_min_version", "flexible_since", "key", "max_version", "min_version", "name", "stem")

    def __init__(
        self,
        key: int,
        name: str,
        stem: str,
        versions: tuple[int, int],
        *,
        flexible: int | None = None,
        advertised_min_version: int | None = None,
    ) -> None:
        self.key = key
        self.name = name
        self.stem = stem
        self.min_version, self.max_version = versions
        self.flexible_since = _NEVER_FLEXIBLE if flexible is None else flexible
        self.advertised_min_version = self.min_version if advertised_min_version is None else advertised_min_version

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name}, v{self.min_version}-v{self.max_version})"

    @property
    def request_class(self) -> type[Any]:
        return self._class(f"{self.name}Request")

    @property
    def response_class(self) -> type[Any]:
        return self._class(f"{self.name}Response")

    def serves(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version

    def request_header_version(self, version: int) -> int:
        return 2 if version >= self.flexible_since else 1

    def response_header_version(self, version: int) -> int:
        # A client reads the answer to an ApiVersions version that the broker does not know: its header must look the same in all.
        return 1 if version >= self.flexible_since and self.key != API_VERSIONS_KEY else 0

    def _class(self, class_name: str) -> type[Any]:
        declared: type[Any] = getattr(import_module(f"protocol.messages.{self.stem}"), class_name)
        return declared


API_VERSIONS_KEY = 18

APIS: dict[int, Api] = {
    served.key: served
    for served in (
        # librdkafka before 2.8 sends uncompressed, silently, to a broker that does not advertise Produce 0 (KAFKA-18659).
        Api(0, "Produce", "produce", (3, 12), flexible=9, advertised_min_version=0),
        Api(1, "Fetch", "fetch", (4, 17), flexible=12),
        Api(2, "ListOffsets", "list_offsets", (1, 10), flexible=6),
        Api(3, "Metadata", "metadata", (0, 13), flexible=9),
        Api(8, "OffsetCommit", "offset_commit", (2, 9), flexible=8),
        Api(9, "OffsetFetch", "offset_fetch", (1, 9), flexible=6),
        Api(10, "FindCoordinator", "find_coordinator", (0, 6), flexible=3),
        Api(11, "JoinGroup", "join_group", (0, 9), flexible=6),
        Api(12, "Heartbeat", "heartbeat", (0, 4), flexible=4),
        Api(13, "LeaveGroup", "leave_group", (0, 5), flexible=4),
        Api(14, "SyncGroup", "sync_group", (0, 5), flexible=4),
        Api(15, "DescribeGroups", "describe_groups", (0, 6), flexible=5),
        Api(16, "ListGroups", "list_groups", (0, 5), flexible=3),
        Api(18, "ApiVersions", "api_versions", (0, 4), flexible=3),
        Api(19, "CreateTopics", "create_topics", (2, 7), flexible=5),
        Api(20, "DeleteTopics", "delete_topics", (1, 6), flexible=4),
        Api(22, "InitProducerId", "init_producer_id", (0, 5), flexible=2),
        Api(23, "OffsetForLeaderEpoch", "offset_for_leader_epoch", (2, 4), flexible=4),
        Api(32, "DescribeConfigs", "describe_configs", (1, 4), flexible=4),
        Api(37, "CreatePartitions", "create_partitions", (0, 3), flexible=2),
        Api(44, "IncrementalAlterConfigs", "incremental_alter_configs", (0, 1), flexible=1),
        Api(60, "DescribeCluster", "describe_cluster", (0, 2), flexible=0),
        Api(75, "DescribeTopicPartitions", "describe_topic_partitions", (0, 0), flexible=0),
    )
}
