"""MarkerChannels: writes the ends of transactions to their partitions, wherever these are led (Kafka's TransactionMarkerChannelManager).

Each leader's broker has one channel, with one WriteTxnMarkers in flight; what comes meanwhile shares the next one. Partitions that this
broker leads are written directly. All work is done in later turns of the loop, in slices, so that many transactions that end together
do not delay other requests.

A marker is retried until it is written, across a failover of its leader: a change of the leader sends it to the next one at once, also
out of a request that is not answered. A partition is left out only if the metadata have no such topic or partition. One without a leader,
or whose leader has no address, waits until the metadata change. Kafka takes it for deleted (KAFKA-20734).

INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED are final. Kafka drops the transaction's markers then and the id stays prepared:
every InitProducerId is answered CONCURRENT_TRANSACTIONS until the coordinator moves. Here such a marker counts as written, with a warning,
and the other partitions get theirs. If a later coordinator has taken over, this one cannot complete the transaction: its log refuses. If
there is none (`__transaction_state` was deleted and its leader epochs began anew) the producer goes on with the next InitProducerId, and
a transaction that stays open in that partition is for `kafka-transactions abort`.

As in Kafka, a leader answers a request as a whole: a partition whose followers are slow holds back what shares its request and what waits
behind it, for request.timeout.ms at most.

At most MARKERS_MAX markers are on their way to one destination. More stay in their transaction's own set of partitions. What an ended
life of a coordinator's shard has left behind is known by its epoch and ends no later transaction (KAFKA-16352).

Subscribe `on_metadata_delta` after the ReplicaManager.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from broker.loop.job import LoopJob
from broker.observability.limited_log import LimitedLog
from broker.transactions.local_markers import MARKERS_AT_ONCE
from broker.transactions.marker_queues import NO_NODE, ROUTING, Batch, Destination, LifeKey, PartitionMarker, TransactionEnd
from broker.transactions.marker_requests import make_request, read_outcomes
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.cluster.peer_connections import PeerConnections
    from broker.loop.clock import Clock
    from broker.metadata.image import MetadataDelta
    from broker.metadata.metadata_cache import MetadataCache
    from broker.transactions.local_markers import LocalMarkers
    from broker.transactions.transaction import Partitions, Transaction
    from protocol.messages.write_txn_markers import WriteTxnMarkersResponse

log = logging.getLogger("barnabas.transactions")

MARKERS_PER_REQUEST_MAX = 400
"""Two array elements each at most, which the other broker takes with any barnabas.request.entries.max."""
ROUTED_AT_ONCE = 50  # a microsecond each
RETRY_BACKOFF_MS = 20
RETRY_BACKOFF_MAX_MS = 1_000
ANSWER_MARGIN_MS = 5_000
"""How much longer than a leader waits for its followers its answer is waited for. Without it both would give up at once, and the
connection would end, with what other partitions have to tell."""

FINAL = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
NEEDLESS = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""The producer could not have written there."""
EXPECTED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""All other errors are retried too, with a warning. Kafka's sender fails at them and forgets the transaction."""

ONE_STEP = (None,)


class MarkerChannels:
    """See the module's docstring. Satisfies MarkerSender.

    `partition_for` gives the partition of `__transaction_state` of a transactional id. `make_connections` is called when the first marker
    goes to another broker; `close` closes what it returned. `request_timeout_ms` is how long a leader waits for its followers."""

    def __init__(
        self,
        metadata: MetadataCache,
        local_markers: LocalMarkers,
        make_connections: Callable[[], PeerConnections],
        clock: Clock,
        *,
        partition_for: Callable[[str], int],
        listener_name: str,
        request_timeout_ms: int,
    ) -> None:
        self._metadata = metadata
        self._local_markers = local_markers
        self._make_connections = make_connections
        self._clock = clock
        self._partition_for = partition_for
        self._listener_name = listener_name
        self._answer_timeout_ms = request_timeout_ms + ANSWER_MARGIN_MS
        self._connections: PeerConnections | None = None
        self._log = LimitedLog(log, clock)
        self._is_closed = False

        self._lives: dict[LifeKey, dict[str, TransactionEnd]] = {}
        self._by_partition: dict[tuple[str, int], dict[PartitionMarker, None]] = {}
        self._leaderless = Destination(NO_NODE)
        self._local = Destination(metadata.node_id)
        self._channels: dict[int, Destination] = {}
        self._backing_off: dict[Batch, None] = {}

        # What there is to do, by the job alone, in this order.
        self._job = LoopJob(clock, self._work)
        self._is_working = False
        self._forgotten: deque[TransactionEnd] = deque()
        self._written: deque[TransactionEnd] = deque()
        self._unrouted_ends: deque[TransactionEnd] = deque()
        self._unrouted: deque[PartitionMarker] = deque()
        self._ready: dict[Destination, None] = {}

    # For the coordinator.

    def send(self, transactional_id: str, transaction: Transaction, coordinator_epoch: int, on_written: Callable[[], None]) -> None:
        """As MarkerSender. `on_written` is called in a later turn."""
        assert transaction.partitions, "without partitions no marker would end it"
        life_key = self._partition_for(transactional_id), coordinator_epoch
        end = TransactionEnd(transactional_id, life_key, transaction, on_written)
        life = self._lives.setdefault(life_key, {})
        before = life.get(transactional_id)
        if before is not None:
            self._forget(before)
        life[transactional_id] = end
        self._unrouted_ends.append(end)
        self._resume()

    def unmarked(self, transactional_id: str, coordinator_epoch: int) -> Partitions | None:
        """As MarkerSender."""
        end = self._lives.get((self._partition_for(transactional_id), coordinator_epoch), {}).get(transactional_id)
        return None if end is None else {topic: frozenset(markers) for topic, markers in end.unmarked.items()}

    def forget(self, state_partition: int, coordinator_epoch: int) -> None:
        """As MarkerSender."""
        for end in self._lives.pop((state_partition, coordinator_epoch), {}).values():
            self._forget(end)
        self._resume()

    def _forget(self, end: TransactionEnd) -> None:
        end.is_over = True
        self._forgotten.append(end)

    # For the broker.

    def on_metadata_delta(self, delta: MetadataDelta) -> None:
        """Send markers to new leaders, and those that waited for one."""
        if self._by_partition or self._leaderless.overfull:
            for topic in delta.deleted_topics:
                for index in range(len(topic.partitions)):
                    for marker in tuple(self._by_partition.get((topic.name, index), ())):
                        self._leave_out(marker.end, marker.topic, marker.index)
            for change in delta.changed_partitions:
                for marker in self._by_partition.get((change.topic.name, change.partition), ()):
                    if marker.destination.node_id != change.image.leader:
                        self._reroute(marker)
            self._unrouted_ends.extend(self._leaderless.overfull)
            self._leaderless.overfull.clear()
            if delta.changed_brokers:
                self._reroute_all(self._leaderless.waiting)
        for node_id in delta.changed_brokers:
            self._note_broker(node_id)
        self._resume()

    def _note_broker(self, node_id: int) -> None:
        """A broker that is fenced, or registered anew, answers nothing that it was asked before."""
        channel = self._channels.get(node_id)
        if channel is None or channel.registration is None:
            return
        broker = self._metadata.brokers.get(node_id)
        if broker is None or broker.is_fenced or self._registration_of(node_id) != channel.registration:
            host, port, _ = channel.registration
            assert self._connections is not None
            self._connections.drop(host, port)
            channel.registration = None

    async def close(self) -> None:
        """Write no more markers and call no `on_written`."""
        self._is_closed = True
        self._job.stop()
        for batch in self._backing_off:
            if batch.timer is not None:
                batch.timer.cancel()
        if self._connections is not None:
            await self._connections.close()

    # Metrics.

    @property
    def unknown_destination_count(self) -> int:
        """Markers that wait for a leader (Kafka's UnknownDestinationQueueSize)."""
        return len(self._leaderless.markers)

    @property
    def unfinished_count(self) -> int:
        """Transactions whose markers are not all written."""
        return sum(map(len, self._lives.values()))

    def waiting_by_broker(self) -> dict[int, int]:
        """How many markers each broker has to write, this one included."""
        return {each.node_id: len(each.markers) for each in (self._local, *self._channels.values()) if each.markers}

    # The job.

    def _resume(self) -> None:
        if self._is_working or self._is_closed:  # what the work has led to is found before it ends
            return
        if self._forgotten or self._written or self._unrouted_ends or self._unrouted or self._ready:
            self._job.resume()

    def _work(self) -> Generator[None, None, None]:
        self._is_working = True
        try:
            while (steps := self._next_steps()) is not None:
                yield from steps
        finally:
            self._is_working = False

    def _next_steps(self) -> Iterable[None] | None:
        """Does one step and returns ONE_STEP, or returns several to be done; None if there is nothing to do."""
        if self._forgotten:
            return self._remove(self._forgotten.popleft())
        if self._written:
            self._end(self._written.popleft())
        elif self._unrouted_ends:
            return self._route_end(self._unrouted_ends.popleft())
        elif self._unrouted:
            self._route_some()
        elif self._local.waiting:
            return self._append_locally()
        elif self._ready:
            channel = next(iter(self._ready))
            del self._ready[channel]
            self._send(channel)
        else:
            return None
        return ONE_STEP

    def _end(self, end: TransactionEnd) -> None:
        if not end.is_over:
            end.is_over = True
            life = self._lives[end.life_key]
            del life[end.transactional_id]
            if not life:
                del self._lives[end.life_key]
            end.on_written()

    def _remove(self, end: TransactionEnd) -> Generator[None, None, None]:
        """Take the markers of a transaction that is over from their destinations. What was sent is not taken back."""
        for markers in end.unmarked.values():
            for count, marker in enumerate(markers.values()):
                if marker is not None:
                    self._take_away(marker)
                if count % ROUTED_AT_ONCE == 0:
                    yield
        end.unmarked.clear()

    # Routing.

    def _route_end(self, end: TransactionEnd) -> Generator[None, None, None]:
        """Make the markers that have room at their destinations."""
        for topic, markers in tuple(end.unmarked.items()):
            for count, index in enumerate([index for index, marker in markers.items() if marker is None], start=1):
                if end.is_over:
                    return
                self._make_marker(end, topic, index)
                if count % ROUTED_AT_ONCE == 0:
                    yield
        yield

    def _make_marker(self, end: TransactionEnd, topic: str, index: int) -> None:
        if index not in end.unmarked.get(topic, ()):
            return  # the topic was deleted since the last yield
        destination = self._find_destination(topic, index)
        if destination is None:
            self._leave_out(end, topic, index)
        elif destination.is_full:
            destination.overfull[end] = None
        else:
            marker = PartitionMarker(end, topic, index, destination)
            end.unmarked[topic][index] = marker
            self._by_partition.setdefault((topic, index), {})[marker] = None
            self._enter(marker, destination)

    def _route_some(self) -> None:
        for _ in range(min(ROUTED_AT_ONCE, len(self._unrouted))):
            marker = self._unrouted.popleft()
            if marker.batch is not ROUTING or marker.end.is_over:
                continue
            destination = self._find_destination(marker.topic, marker.index)
            if destination is None:
                self._leave_out(marker.end, marker.topic, marker.index)
            else:
                self._depart(marker)
                self._enter(marker, destination)

    def _find_destination(self, topic: str, index: int) -> Destination | None:
        """None if there is no such partition."""
        partition = self._metadata.find_partition(topic, index)
        if partition is None:
            return None
        node_id = partition.leader
        if node_id == self._local.node_id:
            return self._local
        if node_id == NO_NODE or self._registration_of(node_id) is None:
            return self._leaderless
        channel = self._channels.get(node_id)
        if channel is None:
            channel = self._channels[node_id] = Destination(node_id)
        return channel

    def _registration_of(self, node_id: int) -> tuple[str, int, int] | None:
        address = self._metadata.find_address(node_id, self._listener_name)
        return None if address is None else (*address, self._metadata.brokers[node_id].epoch)

    def _enter(self, marker: PartitionMarker, destination: Destination) -> None:
        destination.enter(marker)
        if destination is self._leaderless:
            self._log.info("markers without a leader", "a marker of %r waits for a leader of %s-%d", *_facts(marker))
        elif destination is not self._local and destination.in_flight is None:
            self._ready[destination] = None

    def _reroute(self, marker: PartitionMarker) -> None:
        """Route the marker anew. An answer to what was sent before does not count any more."""
        if marker.batch is not ROUTING:
            marker.destination.waiting.pop(marker, None)
            marker.batch = ROUTING
            self._unrouted.append(marker)

    def _reroute_all(self, markers: Iterable[PartitionMarker]) -> None:
        for marker in tuple(markers):
            self._reroute(marker)

    def _depart(self, marker: PartitionMarker) -> None:
        destination = marker.destination
        destination.leave(marker)
        self._unrouted_ends.extend(destination.take_overfull())

    def _take_away(self, marker: PartitionMarker) -> None:
        """The marker is not needed any more."""
        self._depart(marker)
        marker.batch = None
        others = self._by_partition[marker.topic, marker.index]
        del others[marker]
        if not others:
            del self._by_partition[marker.topic, marker.index]

    def _leave_out(self, end: TransactionEnd, topic: str, index: int) -> None:
        self._log.info(
            "markers left out", "the marker of %r for %s-%d is left out: there is no such partition", end.transactional_id, topic, index
        )
        self._note_marked(end, topic, index)

    def _note_marked(self, end: TransactionEnd, topic: str, index: int) -> None:
        if end.is_over:
            return
        markers = end.unmarked[topic]
        marker = markers.pop(index)
        if marker is not None:
            self._take_away(marker)
        if not markers:
            del end.unmarked[topic]
        if not end.unmarked:
            self._written.append(end)

    # Writing.

    def _append_locally(self) -> Generator[None, None, None]:
        by_partition: dict[tuple[str, int], list[PartitionMarker]] = {}
        for marker in self._local.waiting:
            by_partition.setdefault((marker.topic, marker.index), []).append(marker)
        for (topic, index), markers in by_partition.items():
            for start in range(0, len(markers), MARKERS_AT_ONCE):
                batch = Batch([each for each in markers[start : start + MARKERS_AT_ONCE] if each in self._local.waiting])
                if batch.markers:
                    self._local.take(batch)
                    ends = [each.end.marker for each in batch.markers]
                    self._local_markers.write(topic, index, ends, partial(self._take_outcomes, batch))
                yield

    def _send(self, channel: Destination) -> None:
        """Send what waits."""
        assert channel.in_flight is None, "a channel is not ready before its request is answered"
        if not channel.waiting:
            return
        registration = self._registration_of(channel.node_id)
        if registration is None:
            self._reroute_all(channel.waiting)
            return
        if self._connections is None:
            self._connections = self._make_connections()
        batch = channel.in_flight = Batch(list(islice(channel.waiting, MARKERS_PER_REQUEST_MAX)))
        channel.take(batch)
        channel.registration = registration
        host, port, _ = registration
        self._connections.get(host, port).send(
            make_request(batch.markers), partial(self._take_answer, channel, batch), timeout_ms=self._answer_timeout_ms
        )

    def _take_answer(self, channel: Destination, batch: Batch, response: WriteTxnMarkersResponse | None) -> None:
        """The connection ended if there is no response. What the response does not tell of is retried as well."""
        channel.in_flight = None
        if channel.waiting:
            self._ready[channel] = None
        self._take_outcomes(batch, read_outcomes(batch.markers, response))

    def _take_outcomes(self, batch: Batch, errors: Sequence[int | None]) -> None:
        if self._is_closed:
            return
        retried: list[PartitionMarker] = []
        for marker, error in zip(batch.markers, errors, strict=True):
            if marker.batch is not batch or marker.end.is_over:
                continue  # sent elsewhere since, or not needed any more
            if error == ErrorCode.NONE or error in FINAL or error in NEEDLESS:
                if error in FINAL:
                    self._warn_of_refusal(marker, ErrorCode(error))
                self._note_marked(marker.end, marker.topic, marker.index)
                continue
            if error is not None and error not in EXPECTED:
                self._log.warning(
                    "unexpected errors of markers", "a marker of %r for %s-%d is retried after error %d", *_facts(marker), error
                )
            retried.append(marker)
        if retried:
            self._back_off(Batch(retried))
        self._resume()

    def _warn_of_refusal(self, marker: PartitionMarker, error: ErrorCode) -> None:
        decided = marker.end.marker
        self._log.warning(
            "refused markers",
            "the marker of %r for %s-%d is refused with %s and counts as written: producer %d epoch %d, coordinator epoch %d, %s. If the"
            " partition has an open transaction of this producer, kafka-transactions find-hanging names it",
            *_facts(marker),
            error.name,
            decided.producer_id,
            decided.producer_epoch,
            decided.coordinator_epoch,
            "commit" if decided.is_commit else "abort",
        )

    def _back_off(self, batch: Batch) -> None:
        """Try these again after a while, which grows with their attempts. A change of their leader ends the wait."""
        for marker in batch.markers:
            marker.batch = batch
            marker.attempts += 1
        doublings = min(marker.attempts for marker in batch.markers) - 1
        delay_ms = min(RETRY_BACKOFF_MS << min(doublings, 10), RETRY_BACKOFF_MAX_MS)
        batch.timer = self._clock.call_later(delay_ms, self._try_again, batch)
        self._backing_off[batch] = None

    def _try_again(self, batch: Batch) -> None:
        del self._backing_off[batch]
        self._reroute_all(marker for marker in batch.markers if marker.batch is batch)
        self._resume()


def _facts(marker: PartitionMarker) -> tuple[str, str, int]:
    return marker.end.transactional_id, marker.topic, marker.index
