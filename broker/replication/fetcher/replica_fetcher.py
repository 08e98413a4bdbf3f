"""ReplicaFetcher: one connection to one leader. It sends the requests of a LeaderFetcher and gives it the answers.

One request is under way at most. The next one is sent when the answer has been processed; a LoopJob processes a large answer. If there is
nothing to ask, the next request is sent at the end of a delay, or after `wake`.

Source: kafka.server.ReplicaFetcherThread, BrokerBlockingSender. Kafka does not interrupt a long poll.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, Protocol

from broker.loop.clock import Clock, Timer
from broker.loop.job import LoopJob
from broker.replication.fetcher.fetcher_control import FollowedPartition, InitialFetch
from broker.replication.fetcher.leader_fetcher import ALL_TAKEN, LeaderFetcher
from broker.replication.fetcher.versions import LeaderVersions
from protocol.framing import keep
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest


class LeaderConnection(Protocol):
    """The part of a PeerConnection that a fetcher uses."""

    def send(
        self, message: Any, on_answer: Callable[[Any | None], None], *, version: int | None = None, timeout_ms: int | None = None
    ) -> None: ...

    def close(self) -> None: ...


class Endpoint(NamedTuple):
    """A leader's address."""

    host: str
    port: int


class ClusterFacts(Protocol):
    """The facts about the cluster that a fetcher needs when it sends a request."""

    @property
    def broker_epoch(self) -> int: ...

    @property
    def versions(self) -> LeaderVersions: ...

    def find_endpoint(self, node_id: int) -> Endpoint | None:
        """The broker's address; None while it is not registered."""


Connect = Callable[[Endpoint, int], LeaderConnection]
"""A connection to that address for the fetcher of that number."""


class ReplicaFetcher:
    """See the module's docstring. Owner: ReplicaFetcherManager."""

    def __init__(
        self, leader_id: int, number: int, fetcher: LeaderFetcher, *, connect: Connect, facts: ClusterFacts, clock: Clock, max_wait_ms: int
    ) -> None:
        self.leader_id = leader_id
        self.number = number
        self._fetcher = fetcher
        self._connect = connect
        self._facts = facts
        self._clock = clock
        self._max_wait_ms = max_wait_ms
        self._connection: LeaderConnection | None = None
        self._endpoint: Endpoint | None = None
        self._exchange = 0  # the number of the latest exchange: answers to earlier ones are dropped
        self._is_under_way = False
        self._is_polling = False
        self._has_news = False
        self._interrupted_ms = -max_wait_ms
        self._timer: Timer | None = None
        self._steps: Iterator[None] = ALL_TAKEN  # the rest of the answer's steps
        self._taking = LoopJob(clock, self._take_steps)
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._fetcher)

    @property
    def name(self) -> str:
        """The name of Kafka's thread."""
        return f"ReplicaFetcherThread-{self.number}-{self.leader_id}"

    def lags(self) -> Iterator[tuple[FollowedPartition, int]]:
        """As LeaderFetcher.lags."""
        return self._fetcher.lags()

    def add(self, partition: FollowedPartition, start: InitialFetch) -> None:
        self._fetcher.add(partition, start)
        self._has_news = True
        self.wake()

    def remove(self, partition: FollowedPartition) -> None:
        self._fetcher.remove(partition)

    def take(self, partition: FollowedPartition) -> InitialFetch | None:
        """Stop fetching the partition. Returns where another fetcher of the leader continues; None if it is not fetched here."""
        state = self._fetcher.take(partition)
        if state is None:
            return None
        return InitialFetch(partition.topic_id, self.leader_id, state.leader_epoch, state.fetch_offset, state.last_fetched_epoch)

    def wake(self) -> None:
        """Ask the LeaderFetcher for a request, in a later turn of the loop."""
        if not self._is_closed and (not self._is_under_way or self._is_polling):
            self._arm(0)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._disconnect()

    def _arm(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(delay_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._is_polling and self._has_news:
            self._maybe_interrupt()
        if not self._is_under_way:
            self._go_on()

    def _maybe_interrupt(self) -> None:
        """End a long poll when a partition was added: after the death of its old leader, producers wait for its first fetch.

        The connection ends too, because answers come in the order of requests. This happens at most once per poll time, so that a series
        of new topics costs few connections."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._interrupted_ms >= self._max_wait_ms:
            self._interrupted_ms = now_ms
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._exchange += 1
        self._is_under_way = self._is_polling = False
        self._taking.stop()
        self._fetcher.begin_anew()
        if connection is not None:
            connection.close()

    def _find_connection(self) -> LeaderConnection | None:
        """The connection to the leader's present address: the leader may have been restarted at another address. None if it has no
        address."""
        endpoint = self._facts.find_endpoint(self.leader_id)
        if endpoint != self._endpoint or endpoint is None:
            self._disconnect()
        self._endpoint = endpoint
        if self._connection is None and endpoint is not None:
            self._connection = self._connect(endpoint, self.number)
        return self._connection

    def _go_on(self) -> None:
        """Send the next request, or wait."""
        if self._is_closed:
            return
        connection = self._find_connection()
        now_ms = self._clock.monotonic_ms()
        versions = self._facts.versions
        request = self._fetcher.next_request(
            fetch_version=versions.fetch,
            list_offsets_version=versions.list_offsets,
            broker_epoch=self._facts.broker_epoch,
            now_ms=now_ms,
        )
        self._has_news = False
        if request is not None and connection is None:
            self._fetcher.handle_failure(now_ms)
            request = None
        if request is None:
            wakes_at_ms = self._fetcher.wakes_at_ms
            if wakes_at_ms is not None:
                self._arm(max(1, wakes_at_ms - now_ms))
            return
        assert connection is not None
        self._is_under_way, self._is_polling = True, isinstance(request, FetchRequest)
        exchange = self._exchange = self._exchange + 1
        version = versions.fetch if self._is_polling else versions.list_offsets
        connection.send(request, lambda response: self._take(exchange, request, response), version=version)

    def _take(self, exchange: int, request: FetchRequest | ListOffsetsRequest, response: Any | None) -> None:
        if exchange != self._exchange or self._is_closed:
            return
        self._is_polling = False
        now_ms = self._clock.monotonic_ms()
        if response is None:
            self._fetcher.handle_failure(now_ms)
            self._end_exchange()
            return
        self._steps = self._fetcher.take_answer(request, response, now_ms=now_ms, wall_ms=self._clock.now_ms())
        if self._steps is ALL_TAKEN:
            self._end_exchange()
            return
        self._taking.run_now()
        if self._taking.is_waiting and isinstance(response, FetchResponse):
            _keep_records(response)

    def _take_steps(self) -> Generator[None, None, None]:
        yield from self._steps
        self._end_exchange()

    def _end_exchange(self) -> None:
        self._is_under_way = False
        self._go_on()


def _keep_records(response: FetchResponse) -> None:
    """Copy the records that lie in the connection's shared buffer, a few KB: the rest of the answer is processed after the connection's
    callback has returned."""
    for topic in response.responses:
        for data in topic.partitions:
            if isinstance(data.records, memoryview):
                data.records = keep(data.records)
