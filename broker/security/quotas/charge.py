"""What each request costs its client of the quotas, and how long the client's connection is muted therefore.

A request has a Charge while any client is limited. It is settled once, when the answer is made: what the request took is counted, and if
the client is over a quota, its connection is muted and the answer tells for how long. The handlers of Produce and Fetch settle theirs,
because they know the bytes; dispatch settles all others. What is over two quotas waits for the longer time.

Request time is the CPU time that the loop, the worker process and the threads that hand bytes to it took for the request, in percent of
one core, without waits (CpuMeter). What comes after the settling counts for the client's next request: the encoding of the answer, its
sending and encryption, and the decryption of that next request.

Source: kafka.server.RequestHandlerHelper, KafkaApis (handleProduceRequest, handleFetchRequest), ClientRequestQuotaManager (KIP-13, KIP-55,
KIP-124, KIP-219).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import TYPE_CHECKING, Any, Protocol

from broker.loop.clock import Clock
from broker.loop.cpu_time import NetworkTime
from broker.security.quotas.client_quota_manager import PERCENT_PER_NANOSECOND
from protocol.apis import ListenerKind

if TYPE_CHECKING:
    from broker.security.quotas.client_quota_manager import ClientQuotaManager
    from broker.security.quotas.quota_managers import QuotaManagers
    from broker.security.quotas.rate import Rate

WRITE_TXN_MARKERS = 27
OF_NODES = (
    1,  # Fetch
    52,  # Vote
    53,  # BeginQuorumEpoch
    54,  # EndQuorumEpoch
    55,  # DescribeQuorum
    56,  # AlterPartition
    58,  # Envelope: the request inside has a charge of its own
    59,  # FetchSnapshot
    62,  # BrokerRegistration
    63,  # BrokerHeartbeat
    67,  # AllocateProducerIds
    70,  # ControllerRegistration
    73,  # AssignReplicasToDirs
    80,  # AddRaftVoter
    81,  # RemoveRaftVoter
    82,  # UpdateRaftVoter
)
EXEMPT_KEYS = {ListenerKind.CLIENT: frozenset((WRITE_TXN_MARKERS,)), ListenerKind.CONTROLLER: frozenset(OF_NODES)}
"""API keys of requests that no quota of time throttles. Kafka throttles heartbeats and registrations of nodes, which a quota for all users
would then keep from the controller. A client that is denied such a request is throttled (RequestHandlerHelper.handleError)."""


class Peer(Protocol):
    """The part of ConnectionFacts that charges use."""

    principal: str
    """`Type:name`; quotas are of names."""
    throttle: Callable[[int], None]
    """Reads nothing from the connection and starts none of its requests for that many ms. What is started is answered."""
    network_time: NetworkTime


class Throttling:
    """Makes the charges of one loop's requests. Call nothing of it while `quotas.is_enabled` is False."""

    def __init__(self, quotas: QuotaManagers, clock: Clock) -> None:
        self.quotas = quotas
        self.monotonic_ms = clock.monotonic_ms
        self.meter = quotas.cpu_meter


class Charge:
    """See the module's docstring. `resume` and `pause` measure its time, which nobody needs to call unless `is_timed`."""

    __slots__ = (
        "_client_id",
        "_counted_in",
        "_counted_ms",
        "_counted_ns",
        "_peer",
        "_size_bytes",
        "_spent_ns",
        "_throttling",
        "is_denied",
        "is_settled",
        "is_taken_back",
        "is_timed",
    )

    def __init__(self, throttling: Throttling, peer: Peer, client_id: str, size_bytes: int) -> None:
        self._throttling = throttling
        self._peer = peer
        self._client_id = client_id
        self._size_bytes = size_bytes
        self.is_timed = throttling.quotas.request.is_enabled
        self._spent_ns = peer.network_time.take() if self.is_timed else 0  # before the present measurement
        self._counted_ns = 0  # of the present measurement, when it was settled
        self._counted_in: Rate | None = None  # what counts the rest, as of `_counted_ms`
        self._counted_ms = 0
        self.is_denied = False
        """Whether the client lacks the right to the cluster that the request needs."""
        self.is_settled = False
        self.is_taken_back = False

    @property
    def _user(self) -> str:
        return self._peer.principal.partition(":")[2]

    # -- time ----------------------------------------------------------------------------------------------------------

    def resume(self) -> Any:
        """The loop works for this request from now on. Returns what `pause` takes."""
        return self._throttling.meter.begin(self) if self.is_timed else None

    def pause(self, resumed: Any) -> None:
        """The loop does so no more, or not yet: what has been resumed before goes on."""
        if resumed is None:
            return
        own_ns = self._throttling.meter.end(resumed)
        if self.is_settled:
            if self._counted_in is not None:
                self._counted_in.record((own_ns - self._counted_ns) * PERCENT_PER_NANOSECOND, self._counted_ms)
            self._counted_ns = 0
        else:
            self._spent_ns += own_ns

    def add(self, cpu_ns: int) -> None:
        """Others have computed so long for this request."""
        if not self.is_settled:
            self._spent_ns += cpu_ns
        elif self._counted_in is not None:
            self._counted_in.record(cpu_ns * PERCENT_PER_NANOSECOND, self._counted_ms)

    # -- settling ------------------------------------------------------------------------------------------------------

    def settle(self, told_ms: int = 0) -> int:
        """Count the time, and mute the connection if the client is over the quota. Returns the throttle time in ms for the answer, 0 for
        none. `told_ms` is what the answer has already: the controller's, or that of another quota which has been counted."""
        self.is_settled = True
        now_ms = self._throttling.monotonic_ms()
        request_ms = self._count_time(now_ms)
        if request_ms > told_ms:
            self._throttling.quotas.request.record_throttle_time(self._user, self._client_id, request_ms, now_ms)
        throttle_time_ms = max(request_ms, told_ms)
        if throttle_time_ms:
            self._peer.throttle(throttle_time_ms)
        return throttle_time_ms

    def settle_exempt(self) -> None:
        """Count the time of a request that no quota of time throttles."""
        self.is_settled = True
        if self.is_timed:
            request, now_ms = self._throttling.quotas.request, self._throttling.monotonic_ms()
            request.record_exempt_time(self._elapsed_ns(), now_ms)
            self._counted_in, self._counted_ms = request.exempt, now_ms

    def settle_produce(self, *, is_answered: bool) -> int:
        """As `settle`, for a Produce: counts its bytes too. One that is not answered (acks=0) is exempt from the quota of time."""
        throttling = self._throttling
        produce, now_ms = throttling.quotas.produce, throttling.monotonic_ms()
        bandwidth_ms = produce.record(self._user, self._client_id, self._size_bytes, now_ms) if produce.is_enabled else 0
        request_ms = 0
        if not is_answered:
            self.settle_exempt()
        else:
            self.is_settled = True
            if self.is_timed:
                request_ms = self._count_time(now_ms)
        return self._throttle(produce, bandwidth_ms, request_ms, now_ms) if bandwidth_ms or request_ms else 0

    def settle_fetch(self, size_bytes: int) -> int:
        """As `settle`, for a consumer's Fetch whose response has `size_bytes`. If `is_taken_back` is True after it, the response must leave
        without records: its bytes are not counted.

        A response that is larger than all that the quota allows in its windows, which one batch may be, is let through once nothing else
        is counted in them. In Kafka its consumer never gets further."""
        fetch, now_ms = self._throttling.quotas.fetch, self._throttling.monotonic_ms()
        self.is_settled = True
        request_ms = self._count_time(now_ms)
        bandwidth_ms = 0
        if fetch.is_enabled:
            bandwidth_ms = fetch.record(self._user, self._client_id, size_bytes, now_ms)
            counted = fetch.get(self._user, self._client_id, now_ms).meter
            self.is_taken_back = bool(request_ms) or (bandwidth_ms > 0 and counted.measure(now_ms) > size_bytes)
            if self.is_taken_back:
                fetch.unrecord(self._user, self._client_id, size_bytes, now_ms)
        else:
            self.is_taken_back = request_ms > 0
        return self._throttle(fetch, bandwidth_ms, request_ms, now_ms)

    def fetch_bytes_max(self, max_bytes: int) -> int:
        """Returns how many bytes a consumer's Fetch may read at most, `max_bytes` or less."""
        fetch = self._throttling.quotas.fetch
        found = fetch.max_value_in_window(self._user, self._client_id) if fetch.is_enabled else None
        return max_bytes if found is None or found >= max_bytes else int(found)

    def _throttle(self, manager: ClientQuotaManager, bandwidth_ms: int, request_ms: int, now_ms: int) -> int:
        throttle_time_ms = max(bandwidth_ms, request_ms)
        if throttle_time_ms:
            counted = manager if bandwidth_ms > request_ms else self._throttling.quotas.request
            counted.record_throttle_time(self._user, self._client_id, throttle_time_ms, now_ms)
            self._peer.throttle(throttle_time_ms)
        return throttle_time_ms

    def _count_time(self, now_ms: int) -> int:
        if not self.is_timed:
            return 0
        request = self._throttling.quotas.request
        sensor = request.get(self._user, self._client_id, now_ms)
        self._counted_in, self._counted_ms = sensor.meter, now_ms
        return request.record_in(sensor, self._elapsed_ns() * PERCENT_PER_NANOSECOND, now_ms)

    def _elapsed_ns(self) -> int:
        """The time so far, which the caller counts."""
        meter = self._throttling.meter
        self._counted_ns = meter.own_ns() if meter.owner is self else 0
        return self._spent_ns + self._counted_ns


@coroutine
def measured(work: Coroutine[Any, Any, Any] | Generator[Any, Any, Any], charge: Charge) -> Generator[Any, Any, Any]:
    """Does what `work`, a coroutine or a generator, does, and charges the time of its steps."""
    step: Callable[[Any], Any] = work.send
    value: Any = None
    try:
        while True:
            resumed = charge.resume()
            try:
                awaited = step(value)
            finally:
                charge.pause(resumed)
            try:
                value = yield awaited
            except GeneratorExit:
                raise
            except BaseException as error:  # a cancellation too
                step, value = work.throw, error
            else:
                step = work.send
    except StopIteration as end:
        return end.value
    finally:
        work.close()
