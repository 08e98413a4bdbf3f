"""KafkaApis: from one request frame to its handler and back to the bytes of the response.

There is one KafkaApis for each kind of listener. Whatever can't be answered by Kafka's rules closes the connection: unknown keys, APIs of
other listeners, unsupported versions, malformed bodies. The one exception is ApiVersions, which answers an unknown version in the layout
of version 0.

A handler returns a response, or a Deferred, a coroutine or a generator of one. Each of those is a stage: what it comes to may be another.
What takes long goes in turns (broker/loop/turns.py): handlers that are generators, and the encoding of what they return.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from time import perf_counter_ns
from types import CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

from broker.handlers.services import ControllerServices, Services
from broker.loop.clock import NS_PER_MS, Clock
from broker.loop.deferred import Deferred
from broker.loop.turns import Turns
from broker.network.context import CloseConnection, ConnectionFacts, RequestContext
from broker.network.request_pipeline import Chunks
from broker.observability.limited_log import LimitedLog
from broker.observability.log_fields import Fields
from broker.routes import Route, Routes, unsupported_api_versions
from broker.security.authorizer.access import OPEN_ACCESS, Access
from broker.security.quotas.charge import EXEMPT_KEYS, Charge, Throttling, measured
from broker.security.quotas.quota_managers import UNLIMITED_QUOTAS
from protocol.apis import ListenerKind
from protocol.errors import DecodeError, ErrorCode, KafkaError, RequestLimit, RequestLimitError, TooManyEntriesError, without_frames
from protocol.framing import HEADER_SIZE_MIN, REQUEST_HEADER, decode_client_id, skip_tags
from protocol.templates import PreparedResponse

if TYPE_CHECKING:
    from broker.security.authorizer.authorizer_log import AuthorizerLog

log = logging.getLogger("barnabas.dispatch")

PRODUCE_KEY = 0

LARGE_FRAME_SIZE = 16 * 1024
"""Bytes; the answer to a larger request may have as many elements, and is encoded in turns unless it is there at once."""


class _Answering:
    """One request whose response is not there yet. `encoded` is the Deferred of its chunks. `is_long`: a message is encoded in turns."""

    __slots__ = ("_apis", "_context", "_is_long", "_request", "_route", "_started_ns", "encoded")

    def __init__(self, apis: KafkaApis, route: Route, context: RequestContext, request: Any, started_ns: int, is_long: bool) -> None:
        self._apis = apis
        self._route = route
        self._context = context
        self._request = request if route.error_response is not None else None  # else its records would keep a large frame in memory
        self._started_ns = started_ns
        self._is_long = is_long
        self.encoded = Deferred()

    def follow(self, outcome: Any, stage: Deferred) -> None:
        """Go on when `stage`, which `outcome` has led to, is complete. The connection's order is held as long as the stage holds it."""
        if type(outcome) is GeneratorType:
            self._is_long = True  # it has many elements, also if they were quickly made: one thing named often is made once
        encoded = self.encoded
        encoded.on_abandon = stage.abandon
        if stage.holds_order:
            encoded.holds_order = True
            stage.on_order_released = encoded.release_order
        stage.when_done(self._go_on)

    def _go_on(self, outcome: Any) -> None:
        charge = self._context.charge
        resumed = None if charge is None else charge.resume()
        try:
            chunks = self._apis.next_stage(self._route, self._context, self._request, outcome, self._is_long)
        except Exception as e:
            self.encoded.complete(without_frames(e))
            return
        finally:
            if charge is not None:
                charge.pause(resumed)
        if type(chunks) is Deferred:
            self.follow(outcome, chunks)
            return
        self._request = None
        self._route.measure(perf_counter_ns() - self._started_ns)
        self.encoded.complete(chunks or [])


class KafkaApis:
    """Dispatches the request frames of one kind of listeners. `handle` is what every connection's pipeline calls."""

    def __init__(self, services: Services | ControllerServices, turns: Turns, kind: ListenerKind = ListenerKind.CLIENT) -> None:
        self._now_ns = services.clock.now_ns
        self._metrics = services.metrics
        self._routes = Routes(services, kind)
        self._authorizer = services.authorizer
        self._authorizer_log = None if services.authorizer is None else _make_log(services.clock)
        self._find_route = self._routes.known.get
        self._quotas = UNLIMITED_QUOTAS if services.quotas is None else services.quotas
        self._throttling = Throttling(self._quotas, services.clock)
        self._exempt_keys = EXEMPT_KEYS[kind]
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
        route = self._find_route(api_key << 16 | api_version) or self._routes.make(api_key, api_version)
        if route is None:
            return [unsupported_api_versions(correlation_id)]
        client_id = frame[HEADER_SIZE_MIN:position]
        if client_id != facts.client_id_bytes:
            facts.client_id_text = decode_client_id(client_id, client_id_size)
            facts.client_id_bytes = bytes(client_id)
        if route.has_request_tags:
            if position < len(frame) and frame[position] == 0:  # nearly always
                position += 1
            else:
                position = skip_tags(frame, position)
        charge = resumed = None
        if self._quotas.is_enabled:
            charge = Charge(self._throttling, facts, facts.client_id_text, len(frame))
            if charge.is_timed:
                resumed = charge.resume()
        try:
            request, _ = route.decode(frame, position, route.entries_max)
        except TooManyEntriesError as e:
            raise RequestLimitError(api_key, RequestLimit.ENTRIES, str(e)) from None
        access = OPEN_ACCESS if self._authorizer is None else self._access(route, facts)
        context = RequestContext(api_key, api_version, correlation_id, facts.client_id_text, facts, self._now_ns() // NS_PER_MS, access)
        context.charge = charge
        try:
            outcome = route.handler(context, request)
        except Exception as e:
            outcome = self.response_to_failure(route, context, request, e)
        chunks = outcome if type(outcome) is list else self.next_stage(route, context, request, outcome, is_long=False)
        if charge is not None and resumed is not None:
            charge.pause(resumed)
        if type(chunks) is Deferred:
            answering = _Answering(self, route, context, request, started_ns, is_long=len(frame) > LARGE_FRAME_SIZE)
            answering.follow(outcome, chunks)
            return answering.encoded
        route.measure(perf_counter_ns() - started_ns)
        return chunks

    def refuse(self, frame: memoryview, facts: ConnectionFacts, error: ErrorCode) -> Chunks:
        """The response to the request in `frame` with an error for all of it; empty if it cannot be read, or has none."""
        try:
            api_key, api_version, correlation_id, client_id_size = REQUEST_HEADER.unpack_from(frame)
            route = self._find_route(api_key << 16 | api_version) or self._routes.make(api_key, api_version)
            if route is None:
                return []
            position = HEADER_SIZE_MIN + max(client_id_size, 0)
            if route.has_request_tags:
                position = skip_tags(frame, position)
            request, _ = route.decode(frame, position, route.entries_max)
            context = RequestContext(api_key, api_version, correlation_id, "", facts, self._now_ns() // NS_PER_MS, OPEN_ACCESS)
            response = self.response_to_failure(route, context, request, KafkaError(error))
            if not isinstance(response, route.api.response_class):
                return []  # it would be made in turns: so many things nobody has to ask for before a login
            return route.encode(correlation_id, response)
        except (CloseConnection, DecodeError, TooManyEntriesError, ValueError):
            return []  # ValueError: a FindCoordinator of no key has no place for an error from version 4 on

    def next_stage(self, route: Route, context: RequestContext, request: Any, outcome: Any, is_long: bool) -> Any:
        """What comes after `outcome`, which a handler has returned or a stage has come to: the response's chunks, None for no response, or
        a Deferred of the next stage's outcome. Raises as `response_to_failure`, and what the encoder raises."""
        charge = context.charge
        if isinstance(outcome, PreparedResponse):
            if charge is not None and not charge.is_settled and (throttle_time_ms := charge.settle()):
                outcome = outcome.throttled(throttle_time_ms)
            return outcome.to_chunks(context.correlation_id)
        if isinstance(outcome, Exception):
            failure, outcome = outcome, self.response_to_failure(route, context, request, outcome)
            without_frames(failure)  # they hold parts of the request
        kind = type(outcome)
        if kind is list or kind is Deferred or outcome is None:  # chunks; what a request waits for; acks=0
            return outcome
        if kind is GeneratorType:
            return self.turns.start(outcome if charge is None else measured(outcome, charge))
        if kind is CoroutineType:
            return self._run_in_task(outcome if charge is None else measured(outcome, charge))
        if charge is not None:
            self._settle(charge, context, outcome)
        if not is_long:
            return route.encode(context.correlation_id, outcome)
        work = route.encode_in_turns(context.correlation_id, outcome)
        next(work)
        return self.turns.start(work if charge is None else measured(work, charge))

    async def close(self) -> None:
        """End the requests that still run, oldest first."""
        self.turns.close()
        for task in list(self._tasks):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _access(self, route: Route, facts: ConnectionFacts) -> Access:
        assert self._authorizer is not None and self._authorizer_log is not None, "without one all access is open"
        access = facts.access
        if access is None or not access.is_for(facts.principal, route.api.name):
            access = facts.access = Access(self._authorizer, self._authorizer_log, facts.principal, facts.client_host, route.api.name)
        return access

    def _settle(self, charge: Charge, context: RequestContext, response: Any) -> None:
        """Settle the charge with the answer, unless its handler has done so."""
        if charge.is_settled:
            return
        if context.api_key in self._exempt_keys and not charge.is_denied:
            charge.settle_exempt()
            return
        throttle_time_ms = charge.settle(getattr(response, "throttle_time_ms", 0))
        if throttle_time_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_time_ms

    # -- ways of answering ----------------------------------------------------------------------------------------

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

    def response_to_failure(self, route: Route, context: RequestContext, request: Any, error: Exception) -> Any:
        """The response that carries `error`, or CloseConnection where Kafka's clients cope better with none. Raises a DecodeError again."""
        if isinstance(error, (CloseConnection, DecodeError)):
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
        self._metrics.request_error(route.api.key, error.code)
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED and context.charge is not None:
            context.charge.is_denied = True
        if error.code is ErrorCode.NOT_CONTROLLER and context.connection.is_forwarded:
            raise error  # said of the Envelope: the broker that forwards looks for another controller, its client hears nothing of it
        if route.error_response is not None:
            return route.error_response(request, error)
        response = route.api.response_class()
        if not hasattr(response, "error_code"):
            raise CloseConnection(f"{route.api.name}: {error}")
        response.error_code = error.code
        if hasattr(response, "error_message"):
            response.error_message = error.message
        return response

    def _log_failure(self, route: Route, context: RequestContext, error: Exception) -> None:
        """Our bug, with its traceback; a client that hits it again and again gets the first few."""
        who = {"client": context.connection.client_host, "client_id": context.client_id}
        facts = Fields(api=route.api.name, version=context.api_version, error=type(error).__name__, **who)
        self._log.error(f"{route.api.name} failed", "request failed %s", facts, exc_info=error)


def _make_log(clock: Clock) -> AuthorizerLog:
    from broker.security.authorizer.authorizer_log import AuthorizerLog  # late: most nodes have no authorizer

    return AuthorizerLog(clock)
