"""FetchState: how far a fetcher is with one partition. Owned by its LeaderFetcher.

Source: org.apache.kafka.server.PartitionFetchState, ReplicaState.
"""

from __future__ import annotations

from enum import Enum

from broker.replication.fetch.fetch_data import UNKNOWN_OFFSET
from broker.replication.fetcher.fetcher_control import FollowedPartition, InitialFetch

PartitionKey = tuple[bytes, int]
"""Topic id and partition index."""

NOT_DELAYED = 0


class Phase(Enum):
    """TRUNCATING → FETCHING ⇄ LOOKING_UP_END → LOOKING_UP_START → FETCHING.

    Only a log without epochs begins with TRUNCATING. For any other log, the leader's answer to a Fetch says where to truncate it."""

    TRUNCATING = "cut to the high watermark"
    FETCHING = "fetch"
    LOOKING_UP_END = "out of range: ask where the leader's log ends"
    LOOKING_UP_START = "out of range: ask where the leader's log starts"


class FetchState:
    """One partition. `fetch_offset` is its log's end, except in TRUNCATING, where it is the high watermark. Times are monotonic
    milliseconds."""

    __slots__ = (
        "delayed_until_ms",
        "delays_count",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "leader_epoch",
        "leader_high_watermark",
        "partition",
        "phase",
    )

    def __init__(self, partition: FollowedPartition, start: InitialFetch) -> None:
        self.partition = partition
        self.key: PartitionKey = (start.topic_id, partition.partition)
        self.leader_epoch = start.leader_epoch
        self.fetch_offset = start.fetch_offset
        self.last_fetched_epoch = start.last_fetched_epoch
        self.phase = Phase.FETCHING if start.last_fetched_epoch >= 0 else Phase.TRUNCATING
        self.delayed_until_ms = NOT_DELAYED
        self.delays_count = 0
        """How often in a row the leader did not answer, or did not know that it leads in this epoch."""
        self.leader_high_watermark = UNKNOWN_OFFSET  # in its last answer

    @property
    def lag(self) -> int:
        """Records that the leader has committed and this replica lacks."""
        return max(0, self.leader_high_watermark - self.fetch_offset)

    @property
    def is_in_sync(self) -> bool:
        """Whether it has everything that the leader had committed at its last answer."""
        return 0 <= self.leader_high_watermark <= self.fetch_offset

    @property
    def is_ready(self) -> bool:
        """Whether a Fetch may name it. `waits_for_disk` may forbid that all the same."""
        return self.phase is Phase.FETCHING and self.delayed_until_ms == NOT_DELAYED

    @property
    def waits_for_disk(self) -> bool:
        """Whether a Fetch must not name it until its log is durable: with flush.messages=1 the leader takes everything before the fetch
        offset as durable."""
        partition = self.partition
        return partition.waits_for_flush and partition.log.durable_end_offset < partition.log.log_end_offset
