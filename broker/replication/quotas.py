"""Replication throttles (KIP-73): which replicas are throttled on this broker, their bounds in bytes a second, and their measured rates.

A replica is throttled if a topic's leader.replication.throttled.replicas (on the leader) or follower.replication.throttled.replicas (on the
follower) names it; the bound is this broker's leader.replication.throttled.rate or follower.replication.throttled.rate. The bytes of every
throttled replica count. Replicas that are not in sync wait while the rate is above the bound; those in sync do not, so that no ISR shrinks
because of a throttle. A third bound, replica.alter.log.dirs.io.max.bytes.per.second, is for moves between log directories.

While no topic is throttled, `throttled` is empty, and a fetch checks nothing else.

Source: org.apache.kafka.server.quota.ReplicationQuotaManager, kafka.server.TopicConfigHandler, BrokerConfigHandler, and
org.apache.kafka.common.metrics.stats.SimpleRate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from broker.metadata.dynamic_configs import find_dynamic_value
from config.server import DYNAMIC_ONLY_PROPERTIES, LONG_MAX

if TYPE_CHECKING:
    from broker.loop.clock import Clock
    from broker.metadata.metadata_cache import MetadataCache
    from config.server import ServerConfig

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
MOVES_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"

ALL_REPLICAS = ["*"]
ALL_PARTITIONS: Container[int] = range(2**31)


class _Sample:
    """The bytes of one window of time."""

    __slots__ = ("last_ms", "size_bytes", "start_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms
        self.size_bytes = 0


class ByteRate:
    """Bytes a second over the last `windows_count` windows. If the first bytes came later than that, the rate is over the time since
    then, but over one window at least."""

    __slots__ = ("_clock", "_samples", "_span_ms", "_window_ms")

    def __init__(self, clock: Clock, *, window_seconds: int, windows_count: int) -> None:
        self._clock = clock
        self._window_ms = window_seconds * 1000
        self._span_ms = self._window_ms * windows_count
        self._samples: deque[_Sample] = deque(maxlen=windows_count + 1)  # one more, as in Kafka: it overlaps the span

    def record(self, size_bytes: int) -> None:
        now_ms = self._clock.monotonic_ms()
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._window_ms:
            samples.append(_Sample(now_ms))
        sample = samples[-1]
        sample.last_ms = now_ms
        sample.size_bytes += size_bytes

    @property
    def per_second(self) -> float:
        now_ms = self._clock.monotonic_ms()
        samples = self._samples
        while samples and now_ms - samples[0].last_ms >= self._span_ms:
            samples.popleft()
        if not samples:
            return 0.0
        elapsed_ms = max(now_ms - samples[0].start_ms, self._window_ms)
        return sum(sample.size_bytes for sample in samples) * 1000 / elapsed_ms


class ReplicationQuota:
    """The throttle of one direction. `throttled` has the throttled partitions by topic; `bytes_per_second` is the bound."""

    __slots__ = ("bytes_per_second", "rate", "throttled")

    def __init__(self, rate: ByteRate) -> None:
        self.rate = rate
        self.bytes_per_second = LONG_MAX
        self.throttled: dict[str, Container[int]] = {}

    @property
    def is_exceeded(self) -> bool:
        return self.rate.per_second > self.bytes_per_second

    def is_throttled(self, topic: str | None, partition: int) -> bool:
        partitions = self.throttled.get(topic or "")
        return partitions is not None and partition in partitions

    def record(self, size_bytes: int) -> None:
        """Count bytes of throttled replicas, whether or not the bound is exceeded."""
        if size_bytes:
            self.rate.record(size_bytes)


class ReplicationQuotas:
    """The throttles of one broker, updated with the cluster's configs. Owner: ReplicaManager; the BrokerMetadataPublisher calls it."""

    def __init__(self, config: ServerConfig, metadata: MetadataCache, node_id: int, clock: Clock) -> None:
        self._metadata = metadata
        self._node_id = node_id

        def quota(window_seconds: int, windows_count: int) -> ReplicationQuota:
            return ReplicationQuota(ByteRate(clock, window_seconds=window_seconds, windows_count=windows_count))

        self.leader = quota(config.replication_quota_window_size_seconds, config.replication_quota_window_num)
        self.follower = quota(config.replication_quota_window_size_seconds, config.replication_quota_window_num)
        self.moves = quota(config.alter_log_dirs_replication_quota_window_size_seconds, config.alter_log_dirs_replication_quota_window_num)
        """The throttle of moves between log directories. It has no list of topics: it bounds all moves."""

    def take_over_rates(self) -> None:
        """Called when the brokers' dynamic configs have changed."""
        for quota, name in ((self.leader, LEADER_RATE), (self.follower, FOLLOWER_RATE), (self.moves, MOVES_RATE)):
            bound = find_dynamic_value(self._metadata.state, self._node_id, DYNAMIC_ONLY_PROPERTIES[name])
            quota.bytes_per_second = bound if isinstance(bound, int) else LONG_MAX

    def take_over_topic(self, topic: str) -> None:
        """Called when the topic's configs have changed, also for a topic without replicas here: they may be added later."""
        own = self._metadata.state.topic_overrides(topic)
        if LEADER_REPLICAS not in own and FOLLOWER_REPLICAS not in own:
            self.forget_topic(topic)
            return
        config = self._metadata.log_config(topic)
        for quota, replicas in (
            (self.leader, config.leader_replication_throttled_replicas),
            (self.follower, config.follower_replication_throttled_replicas),
        ):
            partitions = throttled_partitions(replicas, self._node_id)
            if partitions:
                quota.throttled[topic] = partitions
            else:
                quota.throttled.pop(topic, None)

    def forget_topic(self, topic: str) -> None:
        for quota in (self.leader, self.follower):
            quota.throttled.pop(topic, None)


def throttled_partitions(replicas: Iterable[str], node_id: int) -> Container[int]:
    """Returns the partitions of the `partition:broker` pairs that name this broker; all partitions for `*`."""
    named = [replica for replica in replicas if replica]  # Kafka accepts empty entries
    if named == ALL_REPLICAS:
        return ALL_PARTITIONS
    pairs = (replica.split(":") for replica in named)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == node_id)
