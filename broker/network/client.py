"""This broker as a client of other nodes: one connection to a peer, with reconnects, negotiated versions and answers by correlation id.

Requests are answered in their order, as every Kafka server answers them; the correlation id is checked nevertheless. At most
`in_flight_max` are in flight; a bounded number of others waits here. A request that is not answered in time ends the connection, because a
late answer could be taken for that to another request. Every `send` ends in exactly one call of its callback.

Source: org.apache.kafka.clients.NetworkClient, NodeApiVersions.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from enum import Enum
from typing import TYPE_CHECKING, Any

from broker.loop.clock import Clock, Timer
from broker.network.outbox import Outbox
from broker.network.peer_protocol import PeerProtocol
from broker.network.peer_requests import OnAnswer, PeerCodecs, PeerRequest, api_of, read_answer
from broker.network.reconnects import CONNECT_TIMEOUTS_MS, Reconnects
from broker.network.sockets import Network, connect_within, layer_of
from broker.observability.limited_log import LimitedLog
from protocol.apis import API_VERSIONS_KEY, DECLARED, Api
from protocol.errors import DecodeError, ErrorCode
from protocol.framing import BufferPool, FrameAssembler
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from broker.network.peer_login import PeerSecurity
    from broker.network.peer_traffic import PeerTraffic

log = logging.getLogger("barnabas.network")

WAITING_MAX = 1_000  # waiting requests; more are refused at once
API_VERSIONS_VERSION = 3
SOFTWARE_NAME = "barnabas"
SOFTWARE_VERSION = "0"
LOST_CONNECTIONS = "connections to peers lost"  # a kind of log line


class State(Enum):
    IDLE = "idle"
    """Not connected, and nothing to send."""
    BACKING_OFF = "backing off"
    CONNECTING = "connecting"
    SECURING = "securing"
    """Connected; the TLS handshake is under way."""
    NEGOTIATING = "negotiating"
    """The peer's API versions are on their way."""
    LOGGING_IN = "logging in"
    """By SASL, for the first time or again."""
    READY = "ready"
    CLOSED = "closed"


class PeerConnection:
    """One peer at one address; connects at the first request and again after a loss, as long as there is something to send.

    Satisfies FrameReceiver. The owner is the code that sends to the peer. Callbacks come on the loop, never from inside `send`."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        network: Network,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        clock: Clock,
        pool: BufferPool,
        run_in_background: Callable[[Awaitable[Any]], Any],
        request_timeout_ms: int,
        max_frame_size: int,
        in_flight_max: int = 5,
        connect_timeouts_ms: tuple[int, int] = CONNECT_TIMEOUTS_MS,
        security: PeerSecurity | None = None,
        traffic: PeerTraffic | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.state = State.IDLE
        self._security = security
        self._traffic = traffic
        self._network = network
        self._loop = loop
        self._executor = executor
        self._clock = clock
        self._pool = pool
        self._run_in_background = run_in_background
        self._request_timeout_ms = request_timeout_ms
        self._max_frame_size = max_frame_size
        self._in_flight_max = in_flight_max
        self._reconnects = Reconnects(connect_timeouts_ms)
        self._codecs = PeerCodecs(client_id)
        self._log = LimitedLog(log, clock)
        self._protocol: PeerProtocol | None = None
        self._waiting: deque[PeerRequest] = deque()
        self._in_flight: deque[PeerRequest] = deque()
        self._backoff_timer: Timer | None = None
        self._deadline_timer: Timer | None = None
        self._looks_for_late_ms = 0  # when that timer fires
        self._security_timer: Timer | None = None  # ends a TLS handshake that takes too long; later: logs in again
        self._is_login_due = False
        self.versions: dict[int, tuple[int, int]] = {}
        """What the peer speaks: API key → (lowest, highest version), both inclusive; empty before the first connection."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called when an established connection has ended."""

    # -- sending ---------------------------------------------------------------------------------------------------

    def send(self, message: Any, on_answer: OnAnswer, *, version: int | None = None, timeout_ms: int | None = None) -> None:
        """Send `message` in `version`, by default the newest that both sides support."""
        api = api_of(message)
        request = PeerRequest(message, api, version, on_answer)
        if self.state is State.CLOSED or len(self._waiting) >= WAITING_MAX:
            self._loop.call_soon(on_answer, None)
            return
        self._limit_time(request, timeout_ms or self._request_timeout_ms)
        self._waiting.append(request)
        if self.state is State.IDLE:
            self._begin_connecting()
        elif self.state is State.READY:
            self._send_waiting()

    def find_version(self, api: Api) -> int | None:
        """Returns the newest version of `api` that both sides support; None if there is none, or if the peer's versions are not known
        yet."""
        theirs = self.versions.get(api.key)
        if theirs is None:
            return None
        newest = min(api.max_version, theirs[1])
        return newest if newest >= max(api.min_version, theirs[0]) else None

    def close(self) -> None:
        """Close now; unanswered requests get None. Idempotent."""
        self.state = State.CLOSED
        if self._backoff_timer is not None:
            self._backoff_timer.cancel()
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self._drop_connection()
        self._fail_all()

    # -- connecting ------------------------------------------------------------------------------------------------

    def _begin_connecting(self) -> None:
        self.state = State.CONNECTING
        self._run_in_background(self._open())

    async def _open(self) -> None:
        protocol, security = PeerProtocol(self), self._security
        has_tls = security is not None and security.has_tls
        outer = security.secure(protocol, self.host) if security is not None and has_tls else protocol
        timeout_ms = self._reconnects.connect_timeout_ms
        try:
            transport, _ = await connect_within(timeout_ms, self._clock, self._network, self.host, self.port, lambda: outer)
            self._reconnects.attempt_ended(None)
        except OSError as error:
            self._reconnects.attempt_ended(error)
            if self.state is State.CONNECTING:
                self._lost(f"cannot connect: {error}")
            return
        if self.state is not State.CONNECTING:
            transport.abort()
            return
        self._protocol = protocol
        if has_tls and not protocol.is_secured:
            self.state = State.SECURING
            self._security_timer = self._clock.call_later(self._request_timeout_ms, self._lost, "no TLS handshake in time")
        else:
            self._negotiate()

    def connection_secured(self, protocol: PeerProtocol) -> None:
        if protocol is self._protocol and self.state is State.SECURING:
            self._cancel_security_timer()
            self._negotiate()

    def _negotiate(self) -> None:
        self.state = State.NEGOTIATING
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
        negotiation = PeerRequest(request, DECLARED[API_VERSIONS_KEY], API_VERSIONS_VERSION, self._negotiated)
        self._limit_time(negotiation, self._request_timeout_ms)
        self._write(negotiation, API_VERSIONS_VERSION)

    def _negotiated(self, response: ApiVersionsResponse | None) -> None:
        if response is None or self.state is not State.NEGOTIATING:
            return
        if response.error_code:
            self._lost(f"ApiVersions is answered {ErrorCode(response.error_code).name}")
            return
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        if self._security is not None and self._security.mechanism is not None:
            self._begin_login(self._security)
        else:
            self._become_ready()

    def _become_ready(self) -> None:
        self.state = State.READY
        self._reconnects.end_backoff()
        self._send_waiting()

    # -- logging in --------------------------------------------------------------------------------------------------

    def _begin_login(self, security: PeerSecurity) -> None:
        self.state = State.LOGGING_IN
        self._is_login_due = False
        self._run_in_background(self._log_in(security, self._protocol))

    async def _log_in(self, security: PeerSecurity, protocol: PeerProtocol | None) -> None:
        from broker.network.peer_login import RELOGIN_FACTOR, LoginError, log_in  # late: few listeners have SASL

        def ask(message: Any, version: int) -> asyncio.Future[Any]:
            answer: asyncio.Future[Any] = self._loop.create_future()
            if protocol is not self._protocol:
                answer.set_result(None)
                return answer

            def on_answer(response: Any | None) -> None:
                if response is not None and hasattr(response, "auth_bytes"):
                    response.auth_bytes = bytes(response.auth_bytes)
                if not answer.done():
                    answer.set_result(response)

            request = PeerRequest(message, api_of(message), version, on_answer)
            self._limit_time(request, self._request_timeout_ms)
            self._write(request, version)
            return answer

        try:
            lifetime_ms = await log_in(ask, security, self._executor)
        except LoginError as error:
            if protocol is self._protocol and self.state is State.LOGGING_IN:
                self._lost(f"login failed: {error}")
            return
        if protocol is not self._protocol or self.state is not State.LOGGING_IN:
            return
        if lifetime_ms > 0:
            self._security_timer = self._clock.call_later(int(lifetime_ms * RELOGIN_FACTOR), self._login_is_due)
        self._become_ready()

    def _login_is_due(self) -> None:
        self._security_timer = None
        self._is_login_due = True
        self._log_in_if_due()

    def _log_in_if_due(self) -> None:
        """Log in again as soon as nothing is under way."""
        if self._is_login_due and not self._in_flight and self.state is State.READY and self._security is not None:
            self._begin_login(self._security)

    def _cancel_security_timer(self) -> None:
        timer, self._security_timer = self._security_timer, None
        if timer is not None:
            timer.cancel()

    def _lost(self, reason: str) -> None:
        """The connection ended, or never was: what is under way is answered None, what waits is tried again after a while."""
        if self.state is State.CLOSED:
            return
        was_established = self.state in (State.NEGOTIATING, State.READY)
        self._log.info(LOST_CONNECTIONS, "connection lost peer=%s:%d reason=%s", self.host, self.port, reason)
        self.state = State.BACKING_OFF
        self._drop_connection()
        under_way, self._in_flight = self._in_flight, deque()
        for request in under_way:
            self._finish(request, None)
        self._backoff_timer = self._clock.call_later(self._reconnects.grow_backoff(), self._backoff_over)
        if was_established:
            self.on_lost()
        else:
            self._fail_all()  # the peer is away: each caller decides whom to ask instead

    def _backoff_over(self) -> None:
        self._backoff_timer = None
        if self.state is State.BACKING_OFF:
            self.state = State.IDLE
            if self._waiting:
                self._begin_connecting()

    def _drop_connection(self) -> None:
        self._cancel_security_timer()
        self._is_login_due = False
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.abort()

    # -- requests and answers --------------------------------------------------------------------------------------

    def _send_waiting(self) -> None:
        if self._is_login_due:
            self._log_in_if_due()
            return
        while self._waiting and len(self._in_flight) < self._in_flight_max and self.state is State.READY and not self._is_behind:
            request = self._waiting.popleft()
            version = request.version if request.version is not None else self.find_version(request.api)
            if version is None:
                self._finish(request, None)
            else:
                self._write(request, version)

    def _write(self, request: PeerRequest, version: int) -> None:
        chunks = self._codecs.write(request, version)
        self._in_flight.append(request)
        if self._traffic is not None:
            self._traffic.count_request(chunks)
        assert self._protocol is not None
        self._protocol.send(chunks)

    def frame_received(self, frame: memoryview) -> None:
        if not self._in_flight:
            raise DecodeError("a response that nobody asked for")
        request = self._in_flight[0]
        if self._traffic is not None:
            self._traffic.count_response(frame)
        response = read_answer(frame, request)
        self._in_flight.popleft()
        request.on_answer(response)  # at once: views in the response are valid during this call only
        self._send_waiting()

    @property
    def _is_behind(self) -> bool:
        """Whether the peer does not read fast enough: further requests wait here, where their number is bounded."""
        return self._protocol is not None and self._protocol.is_behind

    def peer_takes_more(self) -> None:
        self._send_waiting()

    def make_outbox(self, transport: asyncio.Transport, on_writable: Callable[[], None], on_broken: Callable[[str], None]) -> Outbox:
        def broken(reason: str) -> None:
            self._loop.call_soon(on_broken, reason)  # never from inside `send`

        return Outbox(layer_of(transport, self._network), self._loop, self._executor, on_writable=on_writable, on_broken=broken)

    def make_assembler(self, on_frame: Callable[[memoryview], bool]) -> FrameAssembler:
        return FrameAssembler(on_frame, max_frame_size=self._max_frame_size, pool=self._pool)

    def connection_ended(self, protocol: PeerProtocol, reason: str) -> None:
        if protocol is self._protocol:
            self._protocol = None
            self._lost(reason)

    def _limit_time(self, request: PeerRequest, timeout_ms: int) -> None:
        """Give up waiting for its answer after `timeout_ms`. One timer serves all requests and is not cancelled by answers in time: a
        timer for each request costs a replica fetcher 2 µs an exchange."""
        request.deadline_ms = self._clock.monotonic_ms() + timeout_ms
        if self._deadline_timer is None or request.deadline_ms < self._looks_for_late_ms:
            self._look_for_late_at(request.deadline_ms, timeout_ms)

    def _look_for_late_at(self, deadline_ms: int, delay_ms: int) -> None:
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        self._looks_for_late_ms = deadline_ms
        self._deadline_timer = self._clock.call_later(delay_ms, self._look_for_late)

    def _look_for_late(self) -> None:
        self._deadline_timer = None
        now_ms = self._clock.monotonic_ms()
        for request in (*self._in_flight, *self._waiting):
            if request.deadline_ms <= now_ms:
                self._timed_out(request)
        deadline_ms = min((request.deadline_ms for request in (*self._in_flight, *self._waiting)), default=None)
        if deadline_ms is not None and self._deadline_timer is None:  # else a late answer's callback has sent another request
            self._look_for_late_at(deadline_ms, max(1, deadline_ms - now_ms))

    def _timed_out(self, request: PeerRequest) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
            request.on_answer(None)
        elif request in self._in_flight:
            self._lost(f"{request.api.name} was not answered in time")

    def _fail_all(self) -> None:
        for requests in (self._in_flight, self._waiting):
            while requests:
                self._finish(requests.popleft(), None)

    def _finish(self, request: PeerRequest, response: Any | None) -> None:
        """Call back in a later turn: the caller may be in the middle of an operation."""
        self._loop.call_soon(request.on_answer, response)
