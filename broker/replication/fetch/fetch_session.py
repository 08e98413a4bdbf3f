"""Fetch sessions (KIP-227): the broker remembers what a client fetches, so that client and broker send only what changed.

Kafka looks at every partition of a session at each request. Here a consumer's session watches its partitions, and a request looks only at
those that have changed, or that the client has moved, since the last answer. So an idle session of 1,000 partitions costs as much as one of
a single partition. A follower's session does not watch: each of its fetches counts for every partition.

`fetch_session_cache.py` makes sessions and ends them. Source: kafka.server.FetchSession, org.apache.kafka.common.requests.FetchMetadata.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.network.context import ConnectionFacts
from broker.replication.fetch.fetch_data import UNKNOWN_OFFSET, FetchablePartition, FetchIsolation, FetchTarget, PartitionRead
from broker.replication.purgatory import DelayedOperation
from protocol.uuids import ZERO_UUID

INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
ABANDONED_AGE_MS = 20_000
"""A session whose connection has ended may be gone on with over another one for so long: clients connect again within a second."""
FULL_LOOK_INTERVAL_MS = 10_000  # a safety net: code that moves an offset, retention too, notifies the sessions

PartitionKey = tuple[bytes | str, int]
"""The topic's id, or its name for clients before Fetch v13, and the partition index."""


class FetchSession:
    """One client's partitions. `changed` holds those to look at, in the order of the next read.

    Invariant: a partition outside `changed` had nothing to answer when it left `changed`, and has been watched since."""

    __slots__ = (
        "_has_ended",
        "_isolation",
        "_last_full_look_ms",
        "_rights",
        "changed",
        "connection",
        "counted",
        "created_ms",
        "epoch",
        "is_privileged",
        "last_used_ms",
        "parked",
        "session_id",
        "targets",
        "uses_topic_ids",
        "watched",
    )

    def __init__(
        self,
        session_id: int,
        targets: dict[PartitionKey, FetchTarget],
        connection: ConnectionFacts,
        *,
        uses_topic_ids: bool,
        is_privileged: bool,
        now_ms: int,
    ) -> None:
        self.session_id = session_id
        self.connection = connection  # the one of the latest request
        self.targets = targets
        self.counted = 0  # of the targets, in the cache's count
        self.changed: dict[FetchTarget, None] = dict.fromkeys(targets.values())
        self.watched: dict[FetchablePartition, FetchTarget] = {}
        self.parked: DelayedOperation | None = None  # the latest request that waits
        self._has_ended = False
        self._isolation = FetchIsolation.HIGH_WATERMARK
        self._rights: object = None  # those of the latest full look
        self._last_full_look_ms = now_ms
        self.uses_topic_ids = uses_topic_ids
        self.is_privileged = is_privileged
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)

    @property
    def is_watching(self) -> bool:
        """Whether it looks at a partition only when that has changed. If not, all partitions are always in `changed`.

        A follower's does not, nor one that reads to the log's end, because nothing notifies sessions when that moves."""
        return not self.is_privileged and self._isolation is not FetchIsolation.LOG_END

    def is_abandoned(self, now_ms: int) -> bool:
        """Whether its client is taken to be gone: its connection has ended, and for ABANDONED_AGE_MS no request has come; none waits."""
        return (
            self.connection.is_closed
            and now_ms - self.last_used_ms >= ABANDONED_AGE_MS
            and (self.parked is None or self.parked.is_completed)
        )

    def update(
        self,
        targets: Iterable[FetchTarget],
        forgotten: Iterable[PartitionKey],
        isolation: FetchIsolation,
        now_ms: int,
        rights: object = None,
    ) -> None:
        """Add or change what a request asks for, then drop what it forgets."""
        for target in targets:
            key = key_of(target)
            known = self.targets.get(key)
            if known is None:
                self.targets[key] = known = target
            else:
                known.ask_again(target)
            self.changed[known] = None
        for key in forgotten:
            gone = self.targets.pop(key, None)
            if gone is not None:
                self.changed.pop(gone, None)
                self.unwatch(gone)
        # A partition without news at one isolation level may have some at another; one that the client could read may be forbidden now.
        if isolation is not self._isolation or rights != self._rights or now_ms - self._last_full_look_ms >= FULL_LOOK_INTERVAL_MS:
            self._isolation = isolation
            self._rights = rights
            self._last_full_look_ms = now_ms
            self.changed |= dict.fromkeys(self.targets.values())

    def mark_changed(self, partition: FetchablePartition) -> DelayedOperation | None:
        """`partition` changed: the next request looks at it. Returns the request that waits, if one does."""
        target = self.watched.get(partition)
        if target is None:
            return None  # it left while others were notified
        self.changed[target] = None
        parked = self.parked
        if parked is not None and not parked.is_completed:
            return parked
        if self._has_ended:
            self.close()
        return None

    def watch(self, target: FetchTarget, partition: FetchablePartition) -> None:
        """Have the session notified when `partition`, which `target` names, changes, as long as the session has the target."""
        if target.watched is not partition:
            self.unwatch(target)
            target.watched = partition
            self.watched[partition] = target
            partition.sessions[self] = None

    def unwatch(self, target: FetchTarget) -> None:
        """The target left the session, or there is no such partition any more."""
        partition = target.watched
        if partition is not None:
            target.watched = None
            del self.watched[partition]
            del partition.sessions[self]

    def drop_if_idle(self, target: FetchTarget) -> None:
        """Look at `target` no more until it changes, if it has no news and its client knows all of it."""
        partition = target.watched
        if (
            partition is not None
            and target.sent_high_watermark == partition.log.high_watermark
            and target.sent_log_start_offset == partition.log.log_start_offset
            and partition.is_idle_for(target, self._isolation)
        ):
            self.changed.pop(target, None)

    def close(self) -> None:
        """End the session. A request that still waits is still notified of changes; the next request finds no session."""
        self._has_ended = True
        if self.parked is not None and not self.parked.is_completed:
            return
        self.parked = None
        for partition, target in self.watched.items():
            target.watched = None
            del partition.sessions[self]
        self.watched.clear()

    def close_if_ended(self) -> None:
        """Called when a request is answered, or waits no more: unwatch the partitions that it began to watch after the session ended."""
        if self._has_ended:
            self.close()

    def select(self, reads: list[PartitionRead]) -> list[PartitionRead]:
        """The reads that tell the client something new. Partitions with records move to the end, so that each gets its turn."""
        selected: list[PartitionRead] = []
        changed = self.changed
        for read in reads:
            target = read.target
            if _must_be_sent(read, target):
                selected.append(read)
            if target not in changed:
                continue  # forgotten
            if read.size_bytes:
                del changed[target]
                changed[target] = None
            elif self.is_watching:
                self.drop_if_idle(target)
        return selected


def next_epoch(epoch: int) -> int:
    """The epoch after this one; it wraps to 1, for 0 asks for a new session."""
    return 1 if epoch == EPOCH_MAX else epoch + 1


def partition_key(topic: str | None, topic_id: bytes, partition: int) -> PartitionKey:
    return (topic_id, partition) if topic is None or topic_id != ZERO_UUID else (topic, partition)


def key_of(target: FetchTarget) -> PartitionKey:
    topic, topic_id = target.topic, target.topic_id  # as `partition_key`, without the call
    return (topic_id, target.partition) if topic is None or topic_id != ZERO_UUID else (topic, target.partition)


def _must_be_sent(read: PartitionRead, target: FetchTarget) -> bool:
    """Whether an incremental response must carry the partition; notes what the response says of it."""
    is_news = read.size_bytes > 0 or read.has_news
    # With an error the watermark is -1: the partition is sent again once the error is over.
    if read.high_watermark != target.sent_high_watermark:
        target.sent_high_watermark = read.high_watermark
        is_news = True
    if read.log_start_offset != target.sent_log_start_offset:
        target.sent_log_start_offset = read.log_start_offset
        is_news = True
    if read.diverging_epoch is not None:
        # A follower takes only the divergence from this answer, so the next one carries the high watermark again. Kafka's leader does
        # not repeat it: its follower learns the high watermark when that moves.
        target.sent_high_watermark = UNKNOWN_OFFSET
    return is_news
