"""ListenerView: the cluster as clients of one listener see it: the brokers that are alive there, and the replicas and leaders that can be
reached.

Created for each request; it reads the MetadataCache and keeps no state.

Source: KRaftMetadataCache.
"""

from __future__ import annotations

from broker.metadata.image import LOST_DIRECTORY, BrokerImage, PartitionImage
from broker.metadata.metadata_cache import MetadataCache
from broker.metadata.unreachable_brokers import UnreachableBrokers
from protocol.errors import ErrorCode

OPERATIONS_NOT_ASKED = -(2**31)

_RESERVED_DIRECTORIES_MAX = 100
"""Ids up to this are no real directories: those of image.py and some to come (org.apache.kafka.common.DirectoryId)."""


class ListenerView:
    """The cluster as clients of `listener_name` may see it, without naming one of `unreachable_brokers` as a leader."""

    def __init__(self, cache: MetadataCache, listener_name: str, unreachable_brokers: UnreachableBrokers | None = None) -> None:
        self._brokers = cache.brokers
        self._listener_name = listener_name
        self.alive: dict[int, BrokerImage] = {
            broker.node_id: broker for broker in cache.brokers.values() if not broker.is_fenced and listener_name in broker.endpoints
        }
        self._unreachable: tuple[int, ...] = ()
        self._listed: tuple[int, ...] = ()
        if unreachable_brokers is not None:
            self._unreachable, self._listed = unreachable_brokers.unreachable(), unreachable_brokers.listed()

    def listed(self) -> list[BrokerImage]:
        """The brokers that are alive, and those that are still listed for a while."""
        return [*self.alive.values(), *(broker for broker in self.fenced() if broker.node_id in self._listed)]

    def endpoint(self, broker: BrokerImage) -> tuple[str, int]:
        """Host and port of a broker that has this listener."""
        return broker.endpoints[self._listener_name]

    def fenced(self) -> list[BrokerImage]:
        """Registered brokers with this listener that are fenced."""
        return [broker for broker in self._brokers.values() if broker.is_fenced and self._listener_name in broker.endpoints]

    def find_leader(self, partition: PartitionImage) -> int | None:
        """Returns the leader if it can be reached on this listener."""
        leader = None if partition.leader in self._unreachable else self._brokers.get(partition.leader)
        return partition.leader if leader is not None and self._listener_name in leader.endpoints else None

    def missing_leader_error(self, partition: PartitionImage) -> ErrorCode:
        """Returns the error for a partition for which no leader is named."""
        is_known = partition.leader in self._brokers and partition.leader not in self._unreachable
        return ErrorCode.LISTENER_NOT_FOUND if is_known else ErrorCode.LEADER_NOT_AVAILABLE

    def offline_replicas(self, partition: PartitionImage) -> list[int]:
        return [
            replica
            for place, replica in enumerate(partition.replicas)
            if replica not in self.alive or _is_directory_offline(self.alive[replica], partition, place)
        ]


def _is_directory_offline(broker: BrokerImage, partition: PartitionImage, place: int) -> bool:
    if not broker.log_dirs or place >= len(partition.directories):
        return False
    directory = partition.directories[place]
    if directory in broker.log_dirs:
        return False
    return directory == LOST_DIRECTORY or int.from_bytes(directory, "big") > _RESERVED_DIRECTORIES_MAX
