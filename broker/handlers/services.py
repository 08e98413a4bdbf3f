"""The services that handlers use, and the type of a handler."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.loop.blocking import RunBlocking
from broker.loop.deferred import Deferred
from broker.network.context import ConnectionFacts, RequestContext

if TYPE_CHECKING:
    from broker.cluster.controller_client import ControllerClient
    from broker.controller.channel import ControllerChannel
    from broker.groups.coordinator import GroupCoordinator
    from broker.loop.clock import Clock
    from broker.metadata.metadata_cache import MetadataCache
    from broker.metadata.unreachable_brokers import UnreachableBrokers
    from broker.observability.metrics import Metrics
    from broker.quorum.quorum import Quorum
    from broker.replication.replica_manager import ReplicaManager
    from broker.security.authorizer.standard_authorizer import StandardAuthorizer
    from broker.security.quotas.quota_managers import QuotaManagers
    from broker.telemetry.client_metrics import ClientMetricsManager
    from broker.transactions.coordinator import TransactionCoordinator
    from broker.transactions.partition_additions import PartitionAdditions
    from broker.worker.jobs import Worker
    from config.server import ServerConfig
    from storage.log_manager import LogManager

Handler = Callable[[RequestContext, Any], "Any | Deferred | Generator[None, None, Any] | Coroutine[Any, Any, Any] | None"]
"""A request in; out comes the response message, a Deferred of it, a generator that returns either (a request that may take long, see
broker/loop/turns.py), a coroutine that returns the message (cold APIs only: it costs a task), or None for "no response, ever" (acks=0).
Raises KafkaError for a whole-request error, DecodeError to close the connection."""


def _nothing_known() -> None:
    return None


def _no_fault(_overrides: Mapping[str, str]) -> str | None:
    return None


def _kraft_version_0() -> int:
    return 0


class Services(NamedTuple):
    """Everything that a handler may call. Built once by client_server.py; each handler module's `build(services)` takes the parts that
    it needs."""

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
    log_manager: LogManager
    run_blocking: RunBlocking | None = None
    """Runs a function in the thread pool and returns its future; None (some tests): everything is done on the loop."""
    worker: Worker | None = None
    """Computes outside this process; None (some tests): everything is done on the loop."""
    controller_versions: Callable[[], Mapping[int, tuple[int, int]] | None] = _nothing_known
    """What the active controller speaks, where that is another node and known: API key → (lowest, highest version)."""
    unreachable_brokers: UnreachableBrokers | None = None
    """Brokers that may be gone; None where barnabas.fast.fencing is off."""
    client_metrics: Callable[[], ClientMetricsManager] | None = None
    """What knows of clients' metrics, made when it is first asked for; None (some tests): nothing does."""
    kraft_version: Callable[[], int] = _kraft_version_0
    """The finalized level of kraft.version, which the quorum knows and the metadata do not tell."""
    find_listener_fault: Callable[[Mapping[str, str]], str | None] = _no_fault
    """What is wrong with these dynamic configs of this broker, as far as they are about its listeners."""
    transaction_coordinator: TransactionCoordinator | None = None
    """None (some tests): no transactions are served."""
    partition_additions: PartitionAdditions | None = None
    """What asks the coordinators of transactions; None (some tests): no transactions are served."""
    authorizer: StandardAuthorizer | None = None
    """None: there is no authorizer, and everything is allowed."""
    quotas: QuotaManagers | None = None
    """None (some tests): no client is limited."""


class ControllerServices(NamedTuple):
    """Everything a handler of a controller listener may call. Controller listeners serve before the broker does, or without one."""

    clock: Clock
    metrics: Metrics
    metadata: MetadataCache
    controller: ControllerChannel
    """The controller in this process, which is the active one or answers NOT_CONTROLLER."""
    is_active: Callable[[], bool]
    """Whether it is the active one."""
    ask_quorum: Callable[[Any, int, str], Deferred]
    """The quorum's answer to a request, given its version and the name of the listener that it came by."""
    handle_frame: Callable[[memoryview, ConnectionFacts], Any]
    """What dispatch makes of a request frame of these listeners, for one that came in an Envelope."""
    quorum: Quorum
    """The quorum's leader and kraft.version."""
    config: ServerConfig
    authorizer: StandardAuthorizer | None = None
    """As that of Services."""
    quotas: QuotaManagers | None = None
    """As that of Services."""
