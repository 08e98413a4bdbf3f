"""The interface by which a partition starts and stops its replica fetcher.

A partition calls `add` and `remove` in the middle of a change of the metadata; the fetchers act on it in a later turn of the loop. Source:
kafka.server.AbstractFetcherManager, InitialFetchState.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.log import Log
    from storage.log_results import AppendResult


class InitialFetch(NamedTuple):
    """Where a follower begins in a leader epoch.

    `last_fetched_epoch` is the epoch of its last record, by which the leader finds where the logs diverge (KIP-595). It is -1 if the log
    has no epochs. `fetch_offset` is then its high watermark, up to which all logs are equal, and the follower truncates its log there
    first."""

    topic_id: bytes
    leader_id: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int


class ReplicaLag(NamedTuple):
    """How many committed records a replica of this broker lacked at its leader's last answer."""

    fetcher_name: str
    topic: str
    partition: int
    records_count: int


class FollowedPartition(Protocol):
    """The part of a following Partition that a fetcher uses."""

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
    """The part of the fetchers that partitions use."""

    def add(self, partition: FollowedPartition, start: InitialFetch) -> None:
        """Fetch `partition` from its leader, from `start` on, until `remove`. It must not be fetched already."""

    def remove(self, partition: FollowedPartition) -> None:
        """Stop fetching `partition`; an answer that is on its way is dropped. Does nothing if it is not fetched."""


class NoFetchers:
    """The FetcherControl of a single-node cluster, where no partition follows another broker."""

    def add(self, partition: FollowedPartition, start: InitialFetch) -> None:
        pass

    def remove(self, partition: FollowedPartition) -> None:
        pass


class FetchersOnDemand:
    """The FetcherControl of a broker in a cluster of several: the first `add` creates the real one."""

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
