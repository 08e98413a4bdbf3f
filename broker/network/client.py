"""This broker as a client of other nodes: one connection to a peer, with reconnects, negotiated versions and answers by correlation id.

Requests are answered in their order, as every Kafka server answers them; the correlation id is checked nevertheless. At most
`in_flight_max` are in flight; a bounded number of others waits here. A request that is not answered in time ends the connection, because a
late answer could be taken for that to another request. Every `send` ends in exactly one call of its callback.

Source: org.apache.kafka.clients.NetworkClient, InFlightRequests, NodeApiVersions.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from enum import Enum
from typing import Any, NamedTuple, cast

from broker.loop.clock import Clock, Timer
from broker.network.outbox import Chunk, Outbox
from broker.network.sockets import Network, connect_within
from broker.observability.limited_log import LimitedLog
from protocol import codec
from protocol.apis import API_VERSIONS_KEY, DECLARED, Api
from protocol.errors import DecodeError, ErrorCode
from protocol.framing import BufferPool, FrameAssembler, skip_tags
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

log = logging.getLogger("barnabas.network")

WAITING_MAX = 1_000  # waiting requests; more are refused at once
BACKOFF_MIN_MS = 50
BACKOFF_MAX_MS = 1_000
BACKOFF_GROWTH = 5, 4
"""A fraction. A peer that was away for a while is found at most a fifth of that time after its return, where Kafka's doubling back-off
takes as long again."""
CONNECT_TIMEOUTS_MS = (10_000, 30_000)
"""The first attempt's and the longest: socket.connection.setup.timeout.ms and socket.connection.setup.timeout.max.ms of Kafka's clients.
Each timeout in a row doubles the time of the next attempt."""
TIMEOUT_DOUBLINGS_MAX = 16
API_VERSIONS_VERSION = 3
SOFTWARE_NAME = "barnabas"
LOST_CONNECTIONS = "connections to peers lost"  # a kind of log line

_HEADER = struct.Struct(">ihhih")  # size, API key, API version, correlation id, client id's size
_CORRELATION_ID = struct.Struct(">i")

OnAnswer = Callable[[Any | None], None]
"""Called once: with the response, or None when there is none (not connected, lost, timed out, not spoken by the peer)."""


class State(Enum):
    IDLE = "idle"
    """Not connected, and nothing to send."""
    BACKING_OFF = "backing off"
    CONNECTING = "connecting"
    NEGOTIATING = "negotiating"
    """Connected; the peer's API versions are on their way."""
    READY = "ready"
    CLOSED = "closed"


class _Codecs(NamedTuple):
    """The encoder and the decoder for one API at one version."""

    encode: Callable[[Any], Sequence[Any]]
    decode: Callable[[memoryview, int], tuple[Any, int]]
    request_tags: bytes
    has_response_tags: bool


class _Request:
    """One request: `version` is None for the newest that both sides support. `codecs` are set when it is sent."""

    __slots__ = ("api", "codecs", "correlation_id", "deadline_ms", "message", "on_answer", "version")

    codecs: _Codecs

    def __init__(self, message: Any, api: Api, version: int | None, on_answer: OnAnswer) -> None:
        self.message = message
        self.api = api
        self.version = version
        self.on_answer = on_answer
        self.correlation_id = 0
        self.deadline_ms = 0


class PeerConnection:
    """One peer at one address; connects at the first request and again after a loss, as long as there is something to send.

    The owner is the code that sends to the peer. Callbacks come on the loop, never from inside `send`."""

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
        software_version: str = "0",
    ) -> None:
        self.host = host
        self.port = port
        self.state = State.IDLE
        self._client_id = client_id.encode()
        self._network = network
        self._loop = loop
        self._executor = executor
        self._clock = clock
        self._pool = pool
        self._run_in_background = run_in_background
        self._request_timeout_ms = request_timeout_ms
        self._max_frame_size = max_frame_size
        self._in_flight_max = in_flight_max
        self._connect_timeout_ms, self._connect_timeout_max_ms = connect_timeouts_ms
        self._connect_timeouts_count = 0  # in a row
        self._software_version = software_version
        self._log = LimitedLog(log, clock)
        self._protocol: _Protocol | None = None
        self._waiting: deque[_Request] = deque()
        self._in_flight: deque[_Request] = deque()
        self._next_correlation_id = 1
        self._codecs: dict[tuple[int, int], _Codecs] = {}  # by API key and version: those that were sent
        self._backoff_ms = 0
        self._backoff_timer: Timer | None = None
        self._deadline_timer: Timer | None = None
        self._looks_for_late_ms = 0  # when that timer fires
        self.versions: dict[int, tuple[int, int]] = {}
        """What the peer speaks: API key → (lowest, highest version), both inclusive; empty before the first connection."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called when an established connection has ended."""

    # -- sending ---------------------------------------------------------------------------------------------------

    def send(self, message: Any, on_answer: OnAnswer, *, version: int | None = None, timeout_ms: int | None = None) -> None:
        """Send `message` in `version`, by default the newest that both sides support."""
        api = api_of(message)
        request = _Request(message, api, version, on_answer)
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
        protocol = _Protocol(self)
        timeout_ms = min(self._connect_timeout_ms << self._connect_timeouts_count, self._connect_timeout_max_ms)
        try:
            transport, _ = await connect_within(timeout_ms, self._clock, self._network, self.host, self.port, lambda: protocol)
            self._connect_timeouts_count = 0
        except OSError as error:
            self._connect_timeouts_count = (
                min(self._connect_timeouts_count + 1, TIMEOUT_DOUBLINGS_MAX) if type(error) is TimeoutError else 0
            )
            if self.state is State.CONNECTING:
                self._lost(f"cannot connect: {error}")
            return
        if self.state is not State.CONNECTING:
            transport.abort()
            return
        self._protocol = protocol
        self.state = State.NEGOTIATING
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=self._software_version)
        negotiation = _Request(request, DECLARED[API_VERSIONS_KEY], API_VERSIONS_VERSION, self._negotiated)
        self._limit_time(negotiation, self._request_timeout_ms)
        self._write(negotiation, API_VERSIONS_VERSION)

    def _negotiated(self, response: ApiVersionsResponse | None) -> None:
        if response is None or self.state is not State.NEGOTIATING:
            return
        if response.error_code:
            self._lost(f"ApiVersions is answered {ErrorCode(response.error_code).name}")
            return
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        self.state = State.READY
        self._backoff_ms = 0
        self._send_waiting()

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
        numerator, denominator = BACKOFF_GROWTH
        self._backoff_ms = min(max(self._backoff_ms * numerator // denominator, BACKOFF_MIN_MS), BACKOFF_MAX_MS)
        self._backoff_timer = self._clock.call_later(self._backoff_ms, self._backoff_over)
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
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.abort()

    # -- requests and answers --------------------------------------------------------------------------------------

    def _send_waiting(self) -> None:
        while self._waiting and len(self._in_flight) < self._in_flight_max and self.state is State.READY and not self._is_behind:
            request = self._waiting.popleft()
            version = request.version if request.version is not None else self.find_version(request.api)
            if version is None:
                self._finish(request, None)
            else:
                self._write(request, version)

    def _write(self, request: _Request, version: int) -> None:
        api, client_id = request.api, self._client_id
        codecs = self._codecs.get((api.key, version)) or self._make_codecs(api, version)
        request.correlation_id, request.codecs = self._next_correlation_id, codecs
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        tags = codecs.request_tags
        chunks = codecs.encode(request.message)
        size = _HEADER.size - 4 + len(client_id) + len(tags) + sum(map(len, chunks))
        head = _HEADER.pack(size, api.key, version, request.correlation_id, len(client_id)) + client_id + tags
        self._in_flight.append(request)
        assert self._protocol is not None
        self._protocol.send([head + chunks[0]] if len(chunks) == 1 else [head, *chunks])

    def _make_codecs(self, api: Api, version: int) -> _Codecs:
        codecs = self._codecs[api.key, version] = _Codecs(
            codec.chunks_encoder(api.request_class, version),
            codec.decoder(api.response_class, version),
            b"\x00" if api.request_header_version(version) >= 2 else b"",
            api.response_header_version(version) >= 1,
        )
        return codecs

    def frame_received(self, frame: memoryview) -> None:
        """One response; DecodeError when it is not the one that is expected."""
        if len(frame) < _CORRELATION_ID.size or not self._in_flight:
            raise DecodeError("a response that nobody asked for")
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        request = self._in_flight[0]
        if correlation_id != request.correlation_id:
            raise DecodeError(f"a response to request {correlation_id}, {request.correlation_id} is expected")
        position = _CORRELATION_ID.size
        if request.codecs.has_response_tags:
            position = skip_tags(frame, position)
        response, _ = request.codecs.decode(frame, position)
        self._in_flight.popleft()
        request.on_answer(response)  # at once: views in the response are valid during this call only
        self._send_waiting()

    @property
    def _is_behind(self) -> bool:
        """Whether the peer does not read fast enough: further requests wait here, where their number is bounded."""
        return self._protocol is not None and self._protocol.is_behind

    def peer_takes_more(self) -> None:
        """Called by the connection when the peer has caught up."""
        self._send_waiting()

    def make_outbox(self, transport: asyncio.Transport, on_writable: Callable[[], None], on_broken: Callable[[str], None]) -> Outbox:
        """As for an accepted connection."""

        def broken(reason: str) -> None:
            self._loop.call_soon(on_broken, reason)  # never from inside `send`

        return Outbox(self._network.make_layer(transport), self._loop, self._executor, on_writable=on_writable, on_broken=broken)

    def make_assembler(self, on_frame: Callable[[memoryview], bool]) -> FrameAssembler:
        """Returns the assembler that splits the received bytes into answers."""
        return FrameAssembler(on_frame, max_frame_size=self._max_frame_size, pool=self._pool)

    def connection_ended(self, protocol: _Protocol, reason: str) -> None:
        if protocol is self._protocol:
            self._protocol = None
            self._lost(reason)

    def _limit_time(self, request: _Request, timeout_ms: int) -> None:
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

    def _timed_out(self, request: _Request) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
            request.on_answer(None)
        elif request in self._in_flight:
            self._lost(f"{request.api.name} was not answered in time")

    def _fail_all(self) -> None:
        for requests in (self._in_flight, self._waiting):
            while requests:
                self._finish(requests.popleft(), None)

    def _finish(self, request: _Request, response: Any | None) -> None:
        """Call back in a later turn: the caller may be in the middle of an operation."""
        self._loop.call_soon(request.on_answer, response)


class _Protocol(asyncio.BufferedProtocol):
    """asyncio's side of one connection."""

    def __init__(self, peer: PeerConnection) -> None:
        self._peer: PeerConnection | None = peer
        self._assembler = peer.make_assembler(self._frame)
        self._transport: asyncio.Transport | None = None
        self._outbox: Outbox | None = None

    @property
    def is_behind(self) -> bool:
        return self._outbox is not None and self._outbox.is_behind

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports don't inherit asyncio's
        if self._peer is not None:
            self._outbox = self._peer.make_outbox(self._transport, self._writable, self._end)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._assembler.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._assembler.buffer_updated(nbytes)
        except DecodeError as error:
            self._end(f"malformed answer: {error}")

    def eof_received(self) -> bool:
        self._end("closed by the peer")  # now, because `connection_lost` comes a turn later
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._close_outbox()
        self._transport = None
        self._end(str(exc) if exc is not None else "closed by the peer")

    def pause_writing(self) -> None:
        if self._outbox is not None:
            self._outbox.pause_writing()

    def resume_writing(self) -> None:
        if self._outbox is not None:
            self._outbox.resume_writing()

    def send(self, chunks: Sequence[Chunk]) -> None:
        if self._outbox is None:
            return
        for chunk in chunks:
            self._outbox.push(chunk)
        self._outbox.flush()

    def abort(self) -> None:
        self._peer = None
        self._close_outbox()
        self._assembler.close()
        if self._transport is not None:
            self._transport.abort()

    def _writable(self) -> None:
        if self._peer is not None:
            self._peer.peer_takes_more()

    def _close_outbox(self) -> None:
        outbox, self._outbox = self._outbox, None
        if outbox is not None:
            outbox.close()

    def _frame(self, frame: memoryview) -> bool:
        if self._peer is not None:
            self._peer.frame_received(frame)
        return True

    def _end(self, reason: str) -> None:
        peer, self._peer = self._peer, None
        self._close_outbox()
        self._assembler.close()
        if self._transport is not None:
            self._transport.abort()
        if peer is not None:
            peer.connection_ended(self, reason)


def api_of(message: Any) -> Api:
    """The API that `message` is a request of."""
    return _api_of_class(type(message).__name__)


@functools.cache
def _api_of_class(class_name: str) -> Api:
    return next(each for each in DECLARED.values() if each.name == class_name.removesuffix("Request"))
