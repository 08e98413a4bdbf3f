"""FetchStates: the partitions of one fetcher, and which of them are left out of its next Fetch, until when.

Source: kafka.server.AbstractFetcherThread (partitionStates, delayPartitions).
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.replication.fetch.fetch_data import NO_EPOCH
from broker.replication.fetcher.fetch_state import NOT_DELAYED, FetchState, PartitionKey, Phase
from broker.replication.fetcher.fetcher_control import FollowedPartition, InitialFetch

LEADER_WAIT_MS = 5  # before a leader that may soon be ready is asked again; doubles with each try
LEADER_WAIT_DOUBLINGS_MAX = 10


class FetchStates:
    """Owned by a LeaderFetcher, which reads the dicts; only methods of this class change them. Times are monotonic milliseconds."""

    __slots__ = ("_backoff_ms", "by_key", "changed", "delayed", "out_of_range", "truncating", "waiting_for_disk")

    def __init__(self, backoff_ms: int) -> None:
        self._backoff_ms = backoff_ms
        self.by_key: dict[PartitionKey, FetchState] = {}
        """All. The other dicts hold some of these."""
        self.changed: dict[PartitionKey, None] = {}
        """Those whose part of the session may be out of date, and those that were removed."""
        self.delayed: dict[PartitionKey, FetchState] = {}
        self.waiting_for_disk: dict[PartitionKey, FetchState] = {}
        self.truncating: dict[PartitionKey, FetchState] = {}
        """Logs without epochs that are to be cut to their high watermarks."""
        self.out_of_range: dict[PartitionKey, FetchState] = {}

    def __len__(self) -> int:
        return len(self.by_key)

    def add(self, partition: FollowedPartition, start: InitialFetch) -> None:
        state = FetchState(partition, start)
        self.forget(state.key)
        self.by_key[state.key] = state
        if state.phase is Phase.TRUNCATING:
            self.truncating[state.key] = state

    def take(self, partition: FollowedPartition) -> FetchState | None:
        """Remove the partition. Returns its last state; None if it is not here."""
        key = partition.topic_id, partition.partition
        state = self.by_key.get(key)
        if state is None or state.partition is not partition:
            return None
        self.forget(key)
        return state

    def forget(self, key: PartitionKey) -> None:
        for partitions in (self.by_key, self.delayed, self.waiting_for_disk, self.truncating, self.out_of_range):
            partitions.pop(key, None)
        self.changed[key] = None

    # -- waits ---------------------------------------------------------------------------------------------------------

    @property
    def wakes_at_ms(self) -> int | None:
        """When the first delay ends; None where nothing is delayed."""
        return min((state.delayed_until_ms for state in self.delayed.values()), default=None)

    def delay(self, state: FetchState, now_ms: int, wait_ms: int | None = None) -> None:
        """Leave it out for `wait_ms`, by default replica.fetch.backoff.ms."""
        if state.delayed_until_ms == NOT_DELAYED:
            state.delayed_until_ms = now_ms + max(1, self._backoff_ms if wait_ms is None else wait_ms)
            self.delayed[state.key] = state
            self.changed[state.key] = None

    def wait_for_leader(self, state: FetchState, now_ms: int) -> None:
        """Ask again soon. The leader may read the metadata that elected it a few milliseconds later than this broker, or may just have
        been started. Producers that use acks=all wait for this fetch."""
        wait_ms = LEADER_WAIT_MS << min(state.delays_count, LEADER_WAIT_DOUBLINGS_MAX)
        state.delays_count += 1
        self.delay(state, now_ms, min(wait_ms, self._backoff_ms))

    def wait_for_disk(self, state: FetchState) -> bool:
        """Leave it out until its log is durable. Returns False if it waits already."""
        if state.key in self.waiting_for_disk:
            return False
        self.waiting_for_disk[state.key] = state
        return True

    def end_waits(self, now_ms: int) -> None:
        """Go on with those whose delay is over, and whose log is durable now."""
        for key, state in tuple(self.delayed.items()):
            if state.delayed_until_ms <= now_ms:
                state.delayed_until_ms = NOT_DELAYED
                del self.delayed[key]
                self.changed[key] = None
        for key, state in tuple(self.waiting_for_disk.items()):
            if not state.waits_for_disk:
                del self.waiting_for_disk[key]
                self.changed[key] = None

    # -- phases --------------------------------------------------------------------------------------------------------

    def take_truncating(self) -> Iterator[FetchState]:
        """Yields each of `truncating` that is still fetched; `truncate_later` puts it back."""
        truncating, self.truncating = self.truncating, {}
        for key, state in truncating.items():
            if key in self.by_key:  # else removed when another one's disk failed
                yield state

    def truncate_later(self, state: FetchState) -> None:
        if state.phase is Phase.TRUNCATING:
            self.truncating[state.key] = state

    def begin_look_up(self, state: FetchState) -> None:
        """Its fetch offset is not in the leader's log."""
        state.phase = Phase.LOOKING_UP_END
        self.out_of_range[state.key] = state
        self.changed[state.key] = None

    def end_look_up(self, state: FetchState) -> None:
        """Fetch from the log's end if it was looked up."""
        if self.out_of_range.pop(state.key, None) is not None:
            self.resume(state)

    def resume(self, state: FetchState) -> None:
        """Fetch from the log's end."""
        self.out_of_range.pop(state.key, None)
        state.phase = Phase.FETCHING
        self.update_fetch_offset(state)

    def update_fetch_offset(self, state: FetchState) -> None:
        """The log's end has moved."""
        log = state.partition.log
        latest_epoch = log.leader_epochs.latest_epoch
        state.fetch_offset = log.log_end_offset
        state.last_fetched_epoch = NO_EPOCH if latest_epoch is None else latest_epoch
        self.changed[state.key] = None
