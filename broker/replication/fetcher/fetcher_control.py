"""What a partition tells the replica fetchers: to fetch from its leader from now on, or no more.

A partition calls `add` and `remove` in the middle of a change of the metadata; fetchers take that over and act in a later turn of the
loop. Source: kafka.server.AbstractFetcherManager, InitialFetchState.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.log import Log
    from storage.log_results import AppendResult


class InitialFetch(NamedTuple):
    """Where a follower begins in a leader epoch.

    `last_fetched_epoch` is the epoch of its last record, by which the leader finds where the logs part (KIP-595); -1 if it knows
    no epochs: then `fetch_offset` is its high watermark, up to which no log differs, and it cuts its log there first."""

    topic_id: bytes
    leader_id: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int


class ReplicaLag(NamedTuple):
    """How many committed records a replica of this broker lacks, as its leader's last answer says."""

    fetcher_name: str
    topic: str
    partition: int
    records_count: int


class FollowedPartition(Protocol):
    """What a fetcher sees of a Partition that follows."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def topic_id(self) -> bytes: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def log(self) -> Log: ...

    @property
    def waits_for_flush(self) -> bool:
        """Whether the topic has flush.messages=1."""

    def append_as_follower(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        fetch_offset: int,
        leader_high_watermark: int,
        leader_log_start_offset: int,
        now_ms: int,
    ) -> AppendResult: ...


class FetcherControl(Protocol):
    """The fetchers, as partitions know them."""

    def add(self, partition: FollowedPartition, start: InitialFetch) -> None:
        """Fetch `partition` from its leader, from `start` on, until `remove`. It is not among the fetched ones."""

    def remove(self, partition: FollowedPartition) -> None:
        """Fetch `partition` no more; an answer that is on its way is dropped. It may not be among the fetched ones."""


class NoFetchers:
    """The FetcherControl of a broker alone: nobody is there to be followed."""

    def add(self, partition: FollowedPartition, start: InitialFetch) -> None:
        pass

    def remove(self, partition: FollowedPartition) -> None:
        pass


class FetchersOnDemand:
    """The FetcherControl of a broker that may have something to follow: the first `add` makes the real one."""

    def __init__(self, make: Callable[[], FetcherControl]) -> None:
        self._make = make
        self._fetchers: FetcherControl | None = None

    def add(self, partition: FollowedPartition, start: InitialFetch) -> None:
        if self._fetchers is None:
            self._fetchers = self._make()
        self._fetchers.add(partition, start)

    def remove(self, partition: FollowedPartition) -> None:
        if self._fetchers is not None:
            self._fetchers.remove(partition)
