"""Connections to brokers whose coordinators are asked about transactions, over the wire and by the real handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.cluster.peer_connections import PeerConnections
from broker.handlers.transactions import describe_transactions, list_transactions
from broker.network.client import PeerConnection
from broker.network.peer_requests import OnAnswer
from protocol.codec import decode, encode
from protocol.errors import KafkaError
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from tests.broker.transactions.coordinator_room import Coordinator
from tests.support.doubles import stands_for
from tests.support.services import request_context, services
from tests.support.turns import finished


@stands_for(PeerConnection, own=("is_lost", "before_answer"))
class ServedCoordinator:
    """The way to one broker. `requests` are the names of those that came; `before_answer` is called with each."""

    def __init__(self, coordinator: Coordinator, version: int = 2) -> None:
        self.requests: list[str] = []
        self.is_lost = False
        self.before_answer: Callable[[str], None] = lambda name: None
        self._version = version
        self._services = services(transaction_coordinator=coordinator.served)

    def send(self, message: Any, on_answer: OnAnswer, *, version: int | None = None, timeout_ms: int | None = None) -> None:
        name = type(message).__name__
        self.requests.append(name)
        self.before_answer(name)
        on_answer(None if self.is_lost else self._answer(message))

    def _answer(self, message: Any) -> Any:
        is_description = isinstance(message, DescribeTransactionsRequest)
        module, version = (describe_transactions, 0) if is_description else (list_transactions, self._version)
        request = decode(type(message), version, encode(message, version))[0]
        try:
            answer = finished(module.build(self._services)(request_context(0, version), request))
        except KafkaError as error:
            answer = module.error_response(request, error)
        return decode(type(answer), version, encode(answer, version))[0]


@stands_for(PeerConnections)
class ServedCoordinators:
    """By host."""

    def __init__(self, **by_host: ServedCoordinator) -> None:
        self._by_host = by_host
        self.is_closed = False

    def get(self, host: str, port: int) -> ServedCoordinator:
        return self._by_host[host]

    async def close(self) -> None:
        self.is_closed = True
