"""KafkaApis: from one request frame to its handler and back to the bytes of the response.

There is one KafkaApis for each kind of listener. Its table is filled at each (API key, version)'s first request: the compiled decoder
and encoder and the handler. Whatever can't be answered by Kafka's rules closes the connection: unknown keys, APIs of other listeners,
unsupported versions, malformed bodies. The one exception is ApiVersions, which answers an unknown version in the layout of version 0.

What takes long goes in turns (broker/loop/turns.py): handlers that are generators, and the encoding of what they return. Errors are
answered as on the direct path.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import struct
from collections.abc import Callable, Generator
from time import perf_counter_ns
from types import CoroutineType, GeneratorType
from typing import Any

from broker.handlers.services import ControllerServices, Handler, Services
from broker.loop.deferred import Deferred
from broker.loop.turns import Turns
from broker.network.context import CloseConnection, ConnectionFacts, RequestContext
from broker.network.request_pipeline import Chunks
from broker.observability.limited_log import LimitedLog
from broker.observability.log_fields import Fields
from broker.observability.metrics import RequestMetrics
from protocol import codec
from protocol.apis import API_VERSIONS_KEY, Api, ListenerKind, apis_of
from protocol.codec_in_turns import chunks_encoder_in_turns, records_of
from protocol.errors import DecodeError, ErrorCode, KafkaError, RequestLimit, RequestLimitError, TooManyEntriesError, without_frames
from protocol.framing import HEADER_SIZE_MIN, REQUEST_HEADER, decode_client_id, skip_tags
from protocol.templates import PreparedResponse

log = logging.getLogger("barnabas.dispatch")

PRODUCE_KEY = 0

LARGE_FRAME_SIZE = 16 * 1024
"""Bytes; the answer to a larger request may have as many elements, and is encoded in turns unless it is there at once."""

_RESPONSE_HEADER_V0 = struct.Struct(">ii")  # size, correlation id
_RESPONSE_HEADER_V1 = struct.Struct(">iib")  # … and an empty tag section


class _Route:
    """How requests of one API at one version are served."""

    __slots__ = (
        "_encode_in_turns",
        "api",
        "api_key",
        "decode",
        "encode",
        "encode_error",
        "handler",
        "has_request_tags",
        "has_response_tags",
        "measure",
        "metrics",
        "version",
    )

    def __init__(
        self,
        api: Api,
        version: int,
        handler: Handler,
        error_response: Callable[[Any, KafkaError], Any] | None,
        metrics: RequestMetrics,
    ) -> None:
        self.api = api
        self.api_key = api.key
        self.version = version
        # Each codec is compiled by the first request that needs it: all of a Fetch together take 8 ms. Most APIs never see a long request.
        self.decode: Callable[..., Any] = self._decode_first
        self.encode: Callable[[Any], Any] = self._encode_first
        self._encode_in_turns: Callable[..., Any] | None = None
        self.handler = handler
        self.encode_error = error_response
        self.has_request_tags = api.request_header_version(version) >= 2
        self.has_response_tags = api.response_header_version(version) >= 1
        self.metrics = metrics
        self.measure = metrics.record  # called with each request's nanoseconds

    def encode_in_turns(self, response: Any) -> Generator[None, None, list[Any]]:
        if self._encode_in_turns is None:
            self._encode_in_turns = chunks_encoder_in_turns(self.api.response_class, self.version)
        chunks: list[Any] = yield from self._encode_in_turns(response)
        return chunks

    def _decode_first(self, frame: memoryview, position: int, entries_max: int) -> Any:
        self.decode = codec.decoder(self.api.request_class, self.version)
        return self.decode(frame, position, entries_max)

    def _encode_first(self, response: Any) -> Any:
        self.encode = codec.chunks_encoder(self.api.response_class, self.version)
        return self.encode(response)


class _Answering:
    """One request that is not answered yet. `encoded` is the Deferred of its chunks."""

    __slots__ = ("_apis", "_response", "_started_ns", "context", "encoded", "is_long", "request", "route")

    def __init__(self, apis: KafkaApis, route: _Route, context: RequestContext, request: Any, started_ns: int, is_long: bool) -> None:
        self._apis = apis
        self._started_ns = started_ns
        self._response: Any = None
        self.route = route
        self.context = context
        self.request = request
        self.is_long = is_long
        self.encoded = Deferred()

    def follow(self, stage: Deferred, then: Callable[[Any], None]) -> None:
        """Go on with `then` when `stage` is complete. The connection's order is held as long as the stage holds it."""
        encoded = self.encoded
        encoded.on_abandon = (lambda: self._abandon(stage)) if self.is_long else stage.abandon
        if stage.holds_order:
            encoded.holds_order = True
            stage.on_order_released = encoded.release_order
        stage.when_done(then)

    def answered(self, value: Any) -> None:
        """The handler's answer is there: a message, a generator of one, None, or an exception."""
        if isinstance(value, DecodeError):
            self.encoded.complete(without_frames(value))
            return
        apis, route, context = self._apis, self.route, self.context
        try:
            if isinstance(value, Exception):
                failure, value = value, apis.response_to_failure(route, context, self.request, value)
                without_frames(failure)  # they hold parts of the request
            if isinstance(value, PreparedResponse):
                chunks = value.to_chunks(context.correlation_id)
            elif value is None:
                chunks = []  # acks=0
            elif type(value) is GeneratorType:
                self.is_long = True
                self.follow(apis.turns.start(value), self.answered)
                return
            elif self.is_long:
                self._response = value
                self.follow(apis.turns.start(_encode_in_turns(route, context.correlation_id, value)), self.finished)
                return
            else:
                chunks = _framed(route, context.correlation_id, route.encode(value))
        except Exception as e:
            self.encoded.complete(e)
            return
        self.finished(chunks)

    def _abandon(self, stage: Deferred) -> None:
        """The connection of this long request is gone, perhaps while its response is being encoded."""
        response, self.request, self._response = self._response, None, None
        stage.abandon()
        if response is not None:
            self._apis.turns.start(_release(response))

    def finished(self, chunks: Any) -> None:
        """The response is encoded, or `chunks` is the exception that says why not."""
        self.route.measure(perf_counter_ns() - self._started_ns)
        response, self.request, self._response = self._response, None, None
        if isinstance(chunks, Exception) and response is not None:
            self._apis.turns.start(_release(response))
        self.encoded.complete(chunks)


class KafkaApis:
    """Dispatches the request frames of one kind of listeners. `handle` is what every connection's pipeline calls."""

    def __init__(self, services: Services | ControllerServices, turns: Turns, kind: ListenerKind = ListenerKind.CLIENT) -> None:
        self._services = services
        self._kind = kind
        self._entries_max = services.config.barnabas_request_entries_max if kind is ListenerKind.CLIENT else codec.MAX_REQUEST_ENTRIES
        self._apis = apis_of(kind)
        self._clock = services.clock
        self._metrics = services.metrics
        self._routes: dict[int, _Route] = {}
        self._handlers: dict[int, tuple[Handler, Callable[[Any, KafkaError], Any] | None]] = {}
        self.turns = turns
        self._log = LimitedLog(log, services.clock)
        self._tasks: dict[asyncio.Task[None], None] = {}  # requests whose handler is a coroutine; ordered, so that stopping is too

    def handle(self, frame: memoryview, facts: ConnectionFacts) -> Chunks | Deferred | None:
        """Run the request in `frame` (valid as protocol/framing.py says): its response's chunks, a Deferred of them, or None for no
        response. Raises CloseConnection or DecodeError when the connection has to be closed."""
        started_ns = perf_counter_ns()
        try:
            api_key, api_version, correlation_id, client_id_size = REQUEST_HEADER.unpack_from(frame)
        except struct.error as e:
            raise DecodeError(f"request header cut after {len(frame)} bytes") from e
        position = HEADER_SIZE_MIN + client_id_size if client_id_size > 0 else HEADER_SIZE_MIN
        route = self._routes.get(api_key << 16 | api_version)
        if route is None:
            route = self._find_route(api_key, api_version)
            if route is None:
                return [_unsupported_api_versions(correlation_id)]
        client_id = frame[HEADER_SIZE_MIN:position]
        if client_id != facts.client_id_bytes:
            facts.client_id_text = decode_client_id(client_id, client_id_size)
            facts.client_id_bytes = bytes(client_id)
        if route.has_request_tags:
            position = skip_tags(frame, position)
        try:
            request, _ = route.decode(frame, position, self._entries_max)
        except TooManyEntriesError as e:
            raise RequestLimitError(api_key, RequestLimit.ENTRIES, str(e)) from None
        context = RequestContext(api_key, api_version, correlation_id, facts.client_id_text, facts, self._clock.now_ms())
        try:
            outcome = route.handler(context, request)
        except DecodeError:
            raise
        except Exception as e:
            outcome = self.response_to_failure(route, context, request, e)
        if isinstance(outcome, PreparedResponse):
            chunks = outcome.to_chunks(correlation_id)
            route.measure(perf_counter_ns() - started_ns)
            return chunks
        if type(outcome) is Deferred:
            return self._deferred(route, context, request, outcome, started_ns, is_long=len(frame) > LARGE_FRAME_SIZE)
        if outcome is None:
            route.measure(perf_counter_ns() - started_ns)
            return None
        if type(outcome) is GeneratorType:
            outcome = self.turns.start(outcome)
            return self._deferred(route, context, request, outcome, started_ns, is_long=not outcome.is_done)
        if type(outcome) is CoroutineType:
            outcome = self._run_in_task(outcome)
            return self._deferred(route, context, request, outcome, started_ns, is_long=len(frame) > LARGE_FRAME_SIZE)
        chunks = _framed(route, correlation_id, route.encode(outcome))
        route.measure(perf_counter_ns() - started_ns)
        return chunks

    async def close(self) -> None:
        """End the requests that still run, oldest first."""
        self.turns.close()
        for task in list(self._tasks):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # -- ways of answering ----------------------------------------------------------------------------------------

    def _deferred(
        self, route: _Route, context: RequestContext, request: Any, outcome: Deferred, started_ns: int, *, is_long: bool
    ) -> Deferred:
        """A Deferred of the chunks of what `outcome` comes to, which may be a generator of it. `is_long`: encode in turns."""
        if route.encode_error is None:
            request = None  # else its records keep a large frame in memory for as long as the answer waits
        answering = _Answering(self, route, context, request, started_ns, is_long)
        answering.follow(outcome, answering.answered)
        return answering.encoded

    def _run_in_task(self, outcome: Any) -> Deferred:
        """Run a handler's coroutine in a task that this object owns."""
        answer = Deferred()

        async def run() -> None:
            try:
                response = await outcome
            except Exception as e:
                answer.complete(e)
            else:
                answer.complete(response)

        task = asyncio.get_running_loop().create_task(run())
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return answer

    def response_to_failure(self, route: _Route, context: RequestContext, request: Any, error: Exception) -> Any:
        """The response that carries `error`, or CloseConnection where Kafka's clients cope better with none."""
        if isinstance(error, CloseConnection):
            try:
                raise error
            finally:
                del error  # the traceback holds this frame: a cycle
        if not isinstance(error, KafkaError):
            self._log_failure(route, context, error)
            if context.api_key == PRODUCE_KEY:
                # The Java client resequences an idempotent batch after UNKNOWN_SERVER_ERROR and so duplicates it (KAFKA-14034).
                raise CloseConnection("internal error in a produce request")
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._metrics.request_error(route.api_key, error.code)
        if error.code is ErrorCode.NOT_CONTROLLER and context.connection.is_forwarded:
            raise error  # said of the Envelope: the broker that forwards looks for another controller, its client hears nothing of it
        if route.encode_error is not None:
            return route.encode_error(request, error)
        response = route.api.response_class()
        if not hasattr(response, "error_code"):
            raise CloseConnection(f"{route.api.name}: {error}")
        response.error_code = error.code
        if hasattr(response, "error_message"):
            response.error_message = error.message
        return response

    def _log_failure(self, route: _Route, context: RequestContext, error: Exception) -> None:
        """Our bug, with its traceback; a client that hits it again and again gets the first few."""
        who = {"client": context.connection.client_host, "client_id": context.client_id}
        facts = Fields(api=route.api.name, version=context.api_version, error=type(error).__name__, **who)
        self._log.error(f"{route.api.name} failed", "request failed %s", facts, exc_info=error)

    # -- the table ------------------------------------------------------------------------------------------------

    def _find_route(self, api_key: int, version: int) -> _Route | None:
        """Make the table's entry; None for ApiVersions at a version that we don't know. Raises CloseConnection otherwise."""
        api = self._apis.get(api_key)
        if api is None:
            raise CloseConnection(f"API key {api_key} is not served on {self._kind.value} listeners")
        if not api.min_version <= version <= api.max_version:
            if api_key == API_VERSIONS_KEY:
                return None
            raise CloseConnection(f"{api.name} v{version} is not served")
        handler, error_response = self._handler(api)
        metrics = self._metrics.request(api.name, version)
        route = self._routes[api_key << 16 | version] = _Route(api, version, handler, error_response, metrics)
        return route

    def _handler(self, api: Api) -> tuple[Handler, Callable[[Any, KafkaError], Any] | None]:
        found = self._handlers.get(api.key)
        if found is None:
            if self._kind is ListenerKind.CONTROLLER:
                found = importlib.import_module("broker.handlers.controller.table").build(self._services, api)
            else:
                module = importlib.import_module(f"broker.handlers.{api.family}.{api.stem}")
                found = module.build(self._services), getattr(module, "error_response", None)
            self._handlers[api.key] = found
        return found


def _encode_in_turns(route: _Route, correlation_id: int, response: Any) -> Generator[None, None, list[Any]]:
    return _framed(route, correlation_id, (yield from route.encode_in_turns(response)))


def _release(response: Any) -> Generator[None, None, None]:
    """Close the segment files of a response that is not sent."""
    for records in records_of(response):
        if records is not None and not isinstance(records, (bytes, bytearray, memoryview)):
            records.release()
        yield


def _framed(route: _Route, correlation_id: int, chunks: list[Any]) -> list[Any]:
    """The body's chunks with the frame's size and the response header before them."""
    size = 4 + route.has_response_tags
    for chunk in chunks:
        size += len(chunk)
    if route.has_response_tags:
        head = _RESPONSE_HEADER_V1.pack(size, correlation_id, 0)
    else:
        head = _RESPONSE_HEADER_V0.pack(size, correlation_id)
    chunks[0] = head + chunks[0]
    return chunks


def _unsupported_api_versions(correlation_id: int) -> bytes:
    from broker.handlers.cluster.api_versions import unsupported_version_response

    body = codec.encode(unsupported_version_response(), 0)
    return _RESPONSE_HEADER_V0.pack(4 + len(body), correlation_id) + body
