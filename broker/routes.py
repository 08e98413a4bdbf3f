"""The table of what serves requests: the handler, decoder and encoder of each API at each version.

An entry is made by the first request of its (API key, version). Its codecs are compiled by the first request that needs each: all of a
Fetch together take 8 ms. Handlers are built once, by the module of their API.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable, Generator
from typing import Any

from broker.handlers.services import ControllerServices, Handler, Services
from broker.network.context import CloseConnection, RequestContext
from broker.observability.metrics import RequestMetrics
from broker.security.authorizer.rights import CLIENT_RIGHTS, CONTROLLER_RIGHTS, Checker, Rights
from protocol import codec
from protocol.apis import API_VERSIONS_KEY, FETCH_KEY, Api, ListenerKind, apis_of
from protocol.codec_in_turns import chunks_encoder_in_turns, records_of
from protocol.errors import KafkaError

_RESPONSE_HEADER_V0 = struct.Struct(">ii")  # size, correlation id
_RESPONSE_HEADER_V1 = struct.Struct(">iib")  # … and an empty tag section

ErrorResponse = Callable[[Any, KafkaError], Any]
"""A handler module's `error_response(request, error)`: the response of a request that failed."""


class Route:
    """How requests of one API at one version are served."""

    __slots__ = (
        "_encode",
        "_encode_in_turns",
        "_has_response_tags",
        "_version",
        "api",
        "decode",
        "entries_max",
        "error_response",
        "handler",
        "has_request_tags",
        "measure",
    )

    def __init__(
        self,
        api: Api,
        version: int,
        handler: Handler,
        error_response: ErrorResponse | None,
        metrics: RequestMetrics,
        entries_max: int = codec.MAX_REQUEST_ENTRIES,
    ) -> None:
        self._version = version
        self._encode: Callable[[Any], Any] | None = None
        self._encode_in_turns: Callable[..., Any] | None = None
        self._has_response_tags = api.response_header_version(version) >= 1
        self.api = api
        self.decode: Callable[..., Any] = self._decode_first
        self.entries_max = entries_max
        self.error_response = error_response
        self.handler = handler
        self.has_request_tags = api.request_header_version(version) >= 2
        self.measure = metrics.record  # called with each request's nanoseconds

    def encode(self, correlation_id: int, response: Any) -> list[Any]:
        """The whole frame of a response message, as chunks."""
        if self._encode is None:
            self._encode = codec.chunks_encoder(self.api.response_class, self._version)
        return self._framed(correlation_id, self._encode(response))

    def encode_in_turns(self, correlation_id: int, response: Any) -> Generator[None, None, list[Any]]:
        """The same in pieces. The first yield is before all else: once begun, this closes the segment files of a response that is not
        sent."""
        try:
            yield
            if self._encode_in_turns is None:
                self._encode_in_turns = chunks_encoder_in_turns(self.api.response_class, self._version)
            return self._framed(correlation_id, (yield from self._encode_in_turns(response)))
        except BaseException:
            for records in records_of(response):
                if records is not None and not isinstance(records, (bytes, bytearray, memoryview)):
                    records.release()
            raise

    def _decode_first(self, frame: memoryview, position: int, entries_max: int) -> Any:
        self.decode = codec.decoder(self.api.request_class, self._version)
        return self.decode(frame, position, entries_max)

    def _framed(self, correlation_id: int, chunks: list[Any]) -> list[Any]:
        """The body's chunks with the frame's size and the response header before them."""
        size = 4 + self._has_response_tags
        for chunk in chunks:
            size += len(chunk)
        if self._has_response_tags:
            head = _RESPONSE_HEADER_V1.pack(size, correlation_id, 0)
        else:
            head = _RESPONSE_HEADER_V0.pack(size, correlation_id)
        chunks[0] = head + chunks[0]
        return chunks


class Routes:
    """The table of one kind of listener. `known` has what was asked for so far, by API key << 16 | version."""

    def __init__(self, services: Services | ControllerServices, kind: ListenerKind) -> None:
        self.known: dict[int, Route] = {}
        self._services = services
        self._kind = kind
        self._apis = apis_of(kind)
        self._rights = CONTROLLER_RIGHTS if kind is ListenerKind.CONTROLLER else CLIENT_RIGHTS
        self._handlers: dict[int, tuple[Handler, ErrorResponse | None]] = {}

    def make(self, api_key: int, version: int) -> Route | None:
        """Make the table's entry; None for ApiVersions at a version that we don't know. Raises CloseConnection for an API, or a version of
        another API, that is not served here, and for an API of which nobody has said what rights it needs."""
        api = self._apis.get(api_key)
        if api is None:
            raise CloseConnection(f"API key {api_key} is not served on {self._kind.value} listeners")
        if not api.serves(version, is_unstable_enabled=self._services.config.unstable_api_versions_enable):
            if api_key == API_VERSIONS_KEY:
                return None
            raise CloseConnection(f"{api.name} v{version} is not served")
        handler, error_response = self._handler(api)
        metrics = self._services.metrics.request(api.name, version)
        route = self.known[api_key << 16 | version] = Route(api, version, handler, error_response, metrics, self._entries_max(api))
        return route

    def _entries_max(self, api: Api) -> int:
        """How many array elements and tagged fields a request may have. On 9,500 partitions, each in a topic of its own, a Fetch that
        replaces a session has 28,500 (the topics it forgets, the topics and the partitions it names), any other request 19,001 at most."""
        if self._kind is not ListenerKind.CLIENT:
            return codec.MAX_REQUEST_ENTRIES
        entries_max = self._services.config.barnabas_request_entries_max
        return entries_max * 3 // 2 if api.key == FETCH_KEY else entries_max

    def _handler(self, api: Api) -> tuple[Handler, ErrorResponse | None]:
        found = self._handlers.get(api.key)
        if found is None:
            rights = self._rights.get(api.name)
            if rights is None:
                raise CloseConnection(f"{api.name} has no rights in the table, so nobody may use it")
            if self._kind is ListenerKind.CONTROLLER:
                found = importlib.import_module("broker.handlers.controller.table").build(self._services, api)
            else:
                module = importlib.import_module(f"broker.handlers.{api.family}.{api.stem}")
                found = module.build(self._services), getattr(module, "error_response", None)
            handler, error_response = found
            found = self._handlers[api.key] = self._checked(handler, rights), error_response
        return found

    def _checked(self, handler: Handler, rights: Rights) -> Handler:
        """The handler, after a check of the rights on the cluster, where there is an authorizer and dispatch is to check them."""
        if self._services.authorizer is None or not rights.cluster or rights.checked_by is not Checker.DISPATCH:
            return handler
        operations = rights.cluster

        def handle(context: RequestContext, request: Any) -> Any:
            context.access.require_on_cluster(operations)
            return handler(context, request)

        return handle


def unsupported_api_versions(correlation_id: int) -> bytes:
    """The frame that answers ApiVersions at a version that is not served: in the layout of version 0."""
    from broker.handlers.cluster.api_versions import unsupported_version_response

    body = codec.encode(unsupported_version_response(), 0)
    return _RESPONSE_HEADER_V0.pack(4 + len(body), correlation_id) + body
