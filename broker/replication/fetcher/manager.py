"""ReplicaFetcherManager: assigns partitions to fetchers. There are num.replica.fetchers of them for each leader; a hash spreads the
partitions.

Satisfies FetcherControl. Owns the fetchers; one without partitions is closed in a later turn. When num.replica.fetchers changes, a LoopJob
moves the partitions whose hash now gives another fetcher. Kafka moves all of them.

Source: kafka.server.ReplicaFetcherManager, AbstractFetcherManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol
from zlib import crc32

from broker.loop.clock import Clock, Timer
from broker.loop.job import LoopJob
from broker.metadata.dynamic_configs import find_dynamic_value
from broker.metadata.features import METADATA_VERSION_FEATURE, METADATA_VERSION_LEVEL
from broker.observability.limited_log import LimitedLog
from broker.replication.fetcher.fetcher_control import FollowedPartition, InitialFetch, ReplicaLag
from broker.replication.fetcher.leader_fetcher import FetcherSettings, LeaderFetcher
from broker.replication.fetcher.replica_fetcher import Connect, Endpoint, ReplicaFetcher
from broker.replication.fetcher.versions import LeaderVersions, leader_versions
from broker.replication.partition import Partition
from broker.replication.quotas import ReplicationQuotas
from config.server import SERVER_PROPERTIES

if TYPE_CHECKING:
    from pathlib import Path

    from broker.metadata.metadata_cache import MetadataCache
    from config.server import ServerConfig
    from storage.errors import StorageError

logger = logging.getLogger("barnabas.replication")

FetcherKey = tuple[int, int]
"""Leader and number."""


class Replicas(Protocol):
    """The part of the ReplicaManager that the fetchers use."""

    @property
    def quotas(self) -> ReplicationQuotas: ...

    def on_progress(self, partition: Partition) -> None: ...

    def request_flush(self, partitions: Iterable[Partition]) -> None: ...

    def when_flushed(self, callback: Callable[[], None]) -> None: ...

    def may_truncate(self, partition: Partition, offset: int) -> bool: ...

    def fail_log_dir(self, path: Path | str, error: StorageError) -> None: ...


class ReplicaFetcherManager:
    """See the module's docstring."""

    def __init__(self, config: ServerConfig, metadata: MetadataCache, replicas: Replicas, clock: Clock, connect: Connect) -> None:
        self._config = config
        self._metadata = metadata
        self._count = self._wanted_count
        self._facts = MetadataFacts(metadata, config.inter_broker_listener_name)
        self._replicas = replicas
        self._clock = clock
        self._connect = connect
        self._log = LimitedLog(logger, clock)
        self._fetchers: dict[FetcherKey, ReplicaFetcher] = {}
        self._by_partition: dict[FollowedPartition, ReplicaFetcher] = {}
        self._closing: Timer | None = None
        self._placing = LoopJob(clock, self._place_all)

    def add(self, partition: FollowedPartition, start: InitialFetch) -> None:
        key = start.leader_id, fetcher_number(partition.topic, partition.partition, self._count)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = self._make(*key)
        self._by_partition[partition] = fetcher
        fetcher.add(partition, start)

    def remove(self, partition: FollowedPartition) -> None:
        fetcher = self._by_partition.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)
            self._close_later(fetcher)

    def take_over_settings(self) -> None:
        """Called when the brokers' dynamic configs change, which may change the number of fetchers for each leader."""
        before, self._count = self._count, self._wanted_count
        if self._count != before:
            logger.info("fetchers of each leader: %d instead of %d", self._count, before)
            self._placing.resume()

    @property
    def failed_count(self) -> int:
        """How many partitions are not fetched until newer metadata comes."""
        return len(self._by_partition) - sum(map(len, self._fetchers.values()))

    def lags(self) -> Iterator[ReplicaLag]:
        """The lag of each partition that follows a leader."""
        for fetcher in self._fetchers.values():
            for partition, lag in fetcher.lags():
                yield ReplicaLag(fetcher.name, partition.topic, partition.partition, lag)

    def close(self) -> None:
        """Stop all fetchers."""
        self._placing.stop()
        if self._closing is not None:
            self._closing.cancel()
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._by_partition.clear()

    @property
    def _wanted_count(self) -> int:
        count = find_dynamic_value(self._metadata.state, self._metadata.node_id, SERVER_PROPERTIES["num.replica.fetchers"])
        return count if isinstance(count, int) else self._config.num_replica_fetchers

    def _place_all(self) -> Generator[None, None, None]:
        for partition in tuple(self._by_partition):
            self._place(partition)
            yield

    def _place(self, partition: FollowedPartition) -> None:
        """Move the partition to the fetcher of its hash, if that is another one. A partition that failed stays and waits for newer
        metadata."""
        fetcher = self._by_partition.get(partition)
        if fetcher is None or fetcher.number == fetcher_number(partition.topic, partition.partition, self._count):
            return
        start = fetcher.take(partition)
        if start is not None:
            self.add(partition, start)
            self._close_later(fetcher)

    def _close_later(self, fetcher: ReplicaFetcher) -> None:
        if not len(fetcher) and self._closing is None:
            self._closing = self._clock.call_later(0, self._close_idle)

    def _close_idle(self) -> None:
        self._closing = None
        in_use = set(map(id, self._by_partition.values()))  # also those whose partitions have all failed: newer metadata removes these
        for key, fetcher in tuple(self._fetchers.items()):
            if id(fetcher) not in in_use:
                fetcher.close()
                del self._fetchers[key]

    def _make(self, leader_id: int, number: int) -> ReplicaFetcher:
        config = self._config
        settings = FetcherSettings(
            node_id=config.node_id,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            response_max_bytes=config.replica_fetch_response_max_bytes,
            partition_max_bytes=config.replica_fetch_max_bytes,
            backoff_ms=config.replica_fetch_backoff_ms,
        )
        events = _Events(self._replicas)
        fetcher = ReplicaFetcher(
            leader_id,
            number,
            LeaderFetcher(settings, events, self._replicas.quotas.follower, self._log),
            connect=self._connect,
            facts=self._facts,
            clock=self._clock,
            max_wait_ms=config.replica_fetch_wait_max_ms,
        )
        events.wake = fetcher.wake
        return fetcher


class _Events:
    """Notifies the rest of the broker of what one fetcher does to logs. Satisfies FollowerEvents."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self.wake: Callable[[], None] = lambda: None

    def on_appended(self, partition: FollowedPartition) -> None:
        assert isinstance(partition, Partition)
        if partition.has_flush_limit and partition.is_flush_due:
            self._replicas.request_flush([partition])

    def on_waiting_for_disk(self, partition: FollowedPartition) -> None:
        """Ask for a flush even if nothing was appended: records that a start finds in the log need not be durable either."""
        assert isinstance(partition, Partition)
        self._replicas.request_flush([partition])
        self._replicas.when_flushed(self.wake)

    def may_truncate(self, partition: FollowedPartition, offset: int) -> bool:
        assert isinstance(partition, Partition)
        return self._replicas.may_truncate(partition, offset)

    def on_truncated(self, partition: FollowedPartition) -> None:
        assert isinstance(partition, Partition)
        self._replicas.on_progress(partition)

    def on_disk_failure(self, partition: FollowedPartition, error: StorageError) -> None:
        self._replicas.fail_log_dir(partition.log.directory.parent, error)


class MetadataFacts:
    """The ClusterFacts of this broker's metadata."""

    def __init__(self, metadata: MetadataCache, listener_name: str) -> None:
        self._metadata = metadata
        self._listener_name = listener_name
        self._endpoints: dict[int, Endpoint] = {}  # the last known ones: each Fetch asks

    @property
    def broker_epoch(self) -> int:
        return self._metadata.broker_epoch

    @property
    def versions(self) -> LeaderVersions:
        return leader_versions(self._metadata.state.features.get(METADATA_VERSION_FEATURE, METADATA_VERSION_LEVEL))

    def find_endpoint(self, node_id: int) -> Endpoint | None:
        broker = self._metadata.brokers.get(node_id)
        address = None if broker is None else broker.endpoints.get(self._listener_name)
        if address is None:
            return None
        known = self._endpoints.get(node_id)
        if known != address:
            known = self._endpoints[node_id] = Endpoint(*address)
        return known


def fetcher_number(topic: str, partition: int, fetchers_count: int) -> int:
    """Returns the number of the leader's fetcher that has the partition. Neighbouring partitions have different ones."""
    return (crc32(topic.encode()) + partition) % fetchers_count
