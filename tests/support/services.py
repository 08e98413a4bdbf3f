"""What a handler is given in a test: real collaborators where the test has them, and a plain refusal for the others."""

from __future__ import annotations

import random
from typing import Any

from broker.handlers.services import Services
from broker.network.context import ConnectionFacts, ListenerFacts, RequestContext
from broker.observability.metrics import Metrics
from broker.security.authorizer.access import OPEN_ACCESS
from config.server import ServerConfig
from tests.support.clock import WALL_START_MS, ManualClock


class Absent:
    """A collaborator that the test did not expect to be asked."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        raise AssertionError(f"the handler asks {self._name}.{attribute}, and this test has no {self._name}")


def request_context(
    api_key: int, version: int, *, client_id: str = "client", listener_name: str = "PLAINTEXT", now_ms: int = WALL_START_MS
) -> RequestContext:
    """The context of a request from a connection of its own."""
    connection = ConnectionFacts(1, ListenerFacts(listener_name), "127.0.0.1")
    return RequestContext(api_key, version, 1, client_id, connection, now_ms, OPEN_ACCESS)


def services(**parts: Any) -> Services:
    """Services of node 1 with `parts` in it."""
    given: dict[str, Any] = {
        "config": ServerConfig(),
        "node_id": 1,
        "cluster_id": "cluster",
        "clock": ManualClock(),
        "random": random.Random(1),
        "metrics": Metrics(),
    }
    absent = {name: Absent(name) for name in ("metadata", "controller", "replica_manager", "group_coordinator", "log_manager")}
    return Services(**(given | absent | parts))
