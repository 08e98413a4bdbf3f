"""CoordinatorInquiries: asks all transaction coordinators what they know of producer ids, as `kafka-transactions find-hanging` does.

A producer id does not say which coordinator it has. So each broker that leads a partition of `__transaction_state` is asked by
ListTransactions with the producer ids, and for the ids that it lists by DescribeTransactions; the coordinator in this broker is called.
Without the answer of each of them, and while one partition has no leader, nothing is known: what one coordinator does not have may be
another's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.loop.deferred import Deferred
from broker.loop.job import LoopJob
from broker.metadata.image import TRANSACTION_STATE_TOPIC
from broker.transactions.descriptions import TransactionFilter
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from broker.cluster.peer_connections import PeerConnections
    from broker.loop.clock import Clock
    from broker.metadata.metadata_cache import MetadataCache
    from broker.network.client import PeerConnection
    from broker.transactions.coordinator import TransactionCoordinator


class KnownTransaction(NamedTuple):
    """What a coordinator tells of a transactional id. `partitions` are those that its transaction may still write to or has to end."""

    transactional_id: str
    producer_id: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: Mapping[str, Collection[int]]

    def has(self, topic: str, partition: int) -> bool:
        """Whether the transaction is not over in this partition."""
        return partition in self.partitions.get(topic, ())


class CoordinatorInquiries:
    """See the module's docstring. `make_connections` is called when another broker is asked for the first time; `close` closes what it
    returned. `listener_name` is that of the brokers among each other."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        metadata: MetadataCache,
        make_connections: Callable[[], PeerConnections],
        clock: Clock,
        *,
        listener_name: str,
    ) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._make_connections = make_connections
        self._listener_name = listener_name
        self._connections: PeerConnections | None = None
        self._local = LoopJob(clock, self._ask_local)
        self._local_waiting: deque[_Inquiry] = deque()

    def ask(self, producer_ids: Collection[int]) -> Deferred:
        """A Deferred of the KnownTransactions of these producer ids, by producer id; of None if not all coordinators have answered."""
        topic = self._metadata.find_topic(TRANSACTION_STATE_TOPIC)
        leaders = set() if topic is None else {partition.leader for partition in topic.partitions}
        inquiry = _Inquiry(producer_ids, leaders_count=len(leaders))
        for node_id in leaders:
            address = self._metadata.find_address(node_id, self._listener_name)
            if node_id == self._metadata.node_id:
                self._local_waiting.append(inquiry)
                self._local.resume()
            elif address is None:
                inquiry.note(None)
            else:
                self._ask_peer(inquiry, address)
        return inquiry.answer

    async def close(self) -> None:
        """Ask nothing more. What was asked may never be answered."""
        self._local.stop()
        if self._connections is not None:
            await self._connections.close()

    # The coordinator in this broker.

    def _ask_local(self) -> Generator[None, None, None]:
        while self._local_waiting:
            inquiry = self._local_waiting.popleft()
            try:
                inquiry.note((yield from self._find_local(inquiry)))
            except KafkaError:
                inquiry.note(None)

    def _find_local(self, inquiry: _Inquiry) -> Generator[None, None, list[KnownTransaction]]:
        found: list[KnownTransaction] = []
        for listing in self._coordinator.list_transactions(TransactionFilter(producer_ids=inquiry.producer_ids)):
            if listing is not None:
                described = self._coordinator.describe(listing.transactional_id)
                found.append(
                    KnownTransaction(
                        listing.transactional_id,
                        described.producer_id,
                        described.state,
                        described.timeout_ms,
                        described.start_ms,
                        described.partitions,
                    )
                )
            yield
        return found

    # Another broker's.

    def _ask_peer(self, inquiry: _Inquiry, address: tuple[str, int]) -> None:
        if self._connections is None:
            self._connections = self._make_connections()
        connection = self._connections.get(*address)
        connection.send(ListTransactionsRequest(producer_id_filters=sorted(inquiry.producer_ids)), partial(_listed, inquiry, connection))


def _listed(inquiry: _Inquiry, connection: PeerConnection, response: ListTransactionsResponse | None) -> None:
    if response is None or response.error_code:
        inquiry.note(None)
    elif not response.transaction_states:
        inquiry.note([])
    else:
        transactional_ids = [state.transactional_id for state in response.transaction_states]
        connection.send(DescribeTransactionsRequest(transactional_ids=transactional_ids), partial(_described, inquiry))


def _described(inquiry: _Inquiry, response: DescribeTransactionsResponse | None) -> None:
    if response is None or any(state.error_code not in KNOWING for state in response.transaction_states):
        inquiry.note(None)
        return
    inquiry.note(
        [
            KnownTransaction(
                state.transactional_id,
                state.producer_id,
                state.transaction_state,
                state.transaction_timeout_ms,
                state.transaction_start_time_ms,
                {topic.topic: frozenset(topic.partitions) for topic in state.topics},
            )
            for state in response.transaction_states
            if not state.error_code
        ]
    )


KNOWING = (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
"""An id that was listed may have expired since."""


class _Inquiry:
    """One question to all coordinators, `answer` is complete when the last of them has told."""

    def __init__(self, producer_ids: Collection[int], *, leaders_count: int) -> None:
        self.producer_ids = frozenset(producer_ids)
        self.answer = Deferred()
        self._waits_for_count = leaders_count
        self._known: dict[int, list[KnownTransaction]] | None = {}
        if not leaders_count:
            self.answer.complete(self._known)

    def note(self, told: Collection[KnownTransaction] | None) -> None:
        """What one coordinator has, None if it has not told."""
        if told is None:
            self._known = None
        elif self._known is not None:
            for each in told:
                self._known.setdefault(each.producer_id, []).append(each)
        self._waits_for_count -= 1
        if not self._waits_for_count:
            self.answer.complete(self._known)
