"""What a handler is given: the facts of one request (`RequestContext`) and the broker's collaborators (`Services`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker.deferred import Deferred

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.groups.coordinator import GroupCoordinator
    from broker.metadata.controller_client import ControllerClient
    from broker.metadata.metadata_cache import MetadataCache
    from broker.metrics import Metrics
    from broker.replication.replica_manager import ReplicaManager
    from broker.worker.jobs import Worker
    from config.server import ServerConfig


@dataclass(slots=True)
class RequestContext:
    """One request as its handler sees it. `now_ms` is the wall clock at decode; re-read the clock after any wait."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    listener_name: str
    client_host: str
    principal: str
    connection_id: int
    now_ms: int


Handler = Callable[[RequestContext, Any], "Any | Deferred | Generator[None, None, Any] | Coroutine[Any, Any, Any] | None"]
"""A request in; out comes the response message, a Deferred of it, a generator that returns either (a request that may take long, see
broker/turns.py), a coroutine that returns the message (cold APIs only: it costs a task), or None for "no response, ever" (acks=0).
Raises KafkaError for a whole-request error, DecodeError to close the connection."""


@dataclass(slots=True)
class Services:
    """Everything a handler may call. Built once by server.py; each handler module's `build(services)` picks what it needs."""

    config: ServerConfig
    node_id: int
    cluster_id: str
    clock: Clock
    random: random.Random
    metrics: Metrics
    metadata: MetadataCache
    controller: ControllerClient
    replica_manager: ReplicaManager
    group_coordinator: GroupCoordinator
    run_blocking: Callable[..., Any] | None = None
    """Runs a function in the thread pool and returns its future; None (some tests): everything is done on the loop."""
    worker: Worker | None = None
    """Computes outside this process; None (some tests): everything is done on the loop."""
