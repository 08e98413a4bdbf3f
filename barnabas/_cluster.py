"""`barnabas.Cluster`: brokers of one cluster, each in a process of its own, for as long as a `with` block."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import NoReturn, Self

from ._broker import START_TIMEOUT_S, Broker, overrides_of
from ._create_topic import partitions_by_topic
from ._errors import BrokerError
from ._find_leader import find_leader
from ._process import HOST, BrokerProcess, reserve_port

VOTERS_MAX = 3
REPLICATION_FACTOR_MAX = 3
LEADER_TIMEOUT_S = 30.0
LEADER_POLL_S = 0.05


class Cluster:
    """Brokers on 127.0.0.1, on free ports, with data in temporary directories: `brokers[0]` has node id 1, and so on.

    Each is a `Broker`, to be stopped, killed and started by itself. Of three and more the first three are the controllers as well, so
    that any one may be away; of fewer the first is. Topics have three replicas, or as many as there are brokers, and
    min.insync.replicas is one less; `config` holds other properties of all. `topics` are there once it has started, as in `Broker`.
    `with` starts and closes it; without `with`, `start` and `close` do. It ends with the process that started it, however that ends.
    """

    def __init__(
        self,
        brokers: int = 3,
        config: Mapping[str, object] | None = None,
        topics: Mapping[str, int] | Iterable[str] = (),
        *,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster of {brokers} brokers")
        self._topics = partitions_by_topic(topics)
        cluster_id = _new_cluster_id()
        ports = [_Port() for _ in range(brokers)]
        controllers = {node_id: _Port() for node_id in range(1, 1 + (VOTERS_MAX if brokers >= VOTERS_MAX else 1))}
        shared = {**_shared_settings(brokers, controllers), **(config or {})}
        self.brokers = [
            ClusterBroker(node_id, port, controllers.get(node_id), shared, cluster_id, start_timeout_s)
            for node_id, port in enumerate(ports, start=1)
        ]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        running = sum(broker.is_running for broker in self.brokers)
        return f"<barnabas.Cluster {running} of {len(self.brokers)} brokers are running>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a barnabas.Cluster belongs to the process that made it; give others its bootstrap_servers")

    def start(self) -> Self:
        """Start the brokers that do not run. Returns itself once all serve and the topics are there. Raises as `Broker.start`."""
        started = [broker for broker in self.brokers if not broker.is_running]
        try:
            for broker in started:
                broker.launch()
            for broker in started:
                broker.wait_ready()
            for name, partitions in self._topics.items():
                self.create_topic(name, partitions, exist_ok=True)
        except BaseException:
            self.close()
            raise
        self._topics = {}
        return self

    def stop(self) -> None:
        """Stop every broker in good order; data and ports are kept."""
        for broker in self.brokers:
            broker.stop()

    def kill(self) -> None:
        """Kill every broker (kill -9); data and ports are kept."""
        for broker in self.brokers:
            broker.kill()

    def close(self) -> None:
        """End all and remove their data. May be called again."""
        for broker in self.brokers:
            broker.close()

    def interrupt(self) -> None:
        """For another thread: end the processes at once, so that a `start` or `stop` under way fails."""
        for broker in self.brokers:
            broker.interrupt()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, also of those that do not run."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Create a topic through a broker that runs; as `Broker.create_topic`. None replicas: three, or as many as there are brokers.

        Returns when all brokers that answer know it: a client may ask any of them."""
        broker = next(iter(self._running()), None)
        if broker is None:
            raise BrokerError(f"cannot create topic {name}: no broker of the cluster is running")
        broker.create_topic(name, partitions, replication_factor=replication_factor, config=config, exist_ok=exist_ok)
        deadline = time.monotonic() + LEADER_TIMEOUT_S
        for other in self._running():
            with contextlib.suppress(OSError):  # it was just killed, or is stopped by a signal
                while find_leader((other.host, other.port), name, 0) is None and time.monotonic() < deadline:
                    time.sleep(LEADER_POLL_S)

    def leader(self, topic: str, partition: int = 0, *, timeout_s: float = LEADER_TIMEOUT_S) -> ClusterBroker:
        """The broker that leads a partition. After the death of a leader this waits for the next one.

        Raises BrokerError for a partition that no broker knows, or when no broker that runs leads it in time.
        """
        deadline = time.monotonic() + timeout_s
        while (found := self.find_leader(topic, partition)) is None:
            if time.monotonic() >= deadline:
                raise no_leader(topic, partition, timeout_s)
            time.sleep(LEADER_POLL_S)
        return found

    def find_leader(self, topic: str, partition: int) -> ClusterBroker | None:
        """As `leader`, without waiting; None while no broker that runs leads the partition."""
        known = []
        answered = 0
        for broker in self._running():
            with contextlib.suppress(OSError):  # it was just killed, or is stopped by a signal: ask the others
                leader = find_leader((broker.host, broker.port), topic, partition)
                answered += 1
                known += [] if leader is None else [leader]
        if not answered:
            raise BrokerError(f"who leads {topic}-{partition} is unknown: no broker of the cluster answers")
        if not known:
            raise BrokerError(f"the cluster has no partition {topic}-{partition}")
        newest = max(known)
        return next((broker for broker in self._running() if broker.node_id == newest.node_id), None)

    def _running(self) -> list[ClusterBroker]:
        return [broker for broker in self.brokers if broker.is_running]


class ClusterBroker(Broker):
    """One broker of a `Cluster`."""

    def __init__(
        self, node_id: int, port: _Port, controller: _Port | None, config: Mapping[str, object], cluster_id: str, start_timeout_s: float
    ) -> None:
        self.node_id = node_id
        listeners = [f"PLAINTEXT://{HOST}:{port.number}"]
        if controller is not None:
            listeners.append(f"CONTROLLER://{HOST}:{controller.number}")
        roles = "broker" if controller is None else "broker,controller"
        settings = {**config, "node.id": node_id, "process.roles": roles, "listeners": listeners}
        reservations = [each.reservation for each in (port, controller) if each is not None and each.reservation is not None]
        process = BrokerProcess(
            overrides_of(settings), is_port_given=True, start_timeout_s=start_timeout_s, cluster_id=cluster_id, reservations=reservations
        )
        self._adopt(process, {})

    def launch(self) -> None:
        """Start its process and return at once; `wait_ready` comes next."""
        self._check_owner()
        self._process.launch()

    def wait_ready(self) -> None:
        """Wait until it serves."""
        self._process.wait_ready()


class _Port:
    """A free port, and what keeps it ours while no broker has it; None where the system has no such thing."""

    def __init__(self) -> None:
        self.reservation = reserve_port()
        if self.reservation is not None:
            self.number: int = self.reservation.getsockname()[1]
            return
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.number = probe.getsockname()[1]


def no_leader(topic: str, partition: int, timeout_s: float) -> BrokerError:
    return BrokerError(f"no running broker leads {topic}-{partition} after {timeout_s:g} s")


def _shared_settings(brokers_count: int, controllers: Mapping[int, _Port]) -> dict[str, object]:
    factor = min(brokers_count, REPLICATION_FACTOR_MAX)
    min_isr = max(factor - 1, 1)
    return {
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": [f"{node_id}@{HOST}:{port.number}" for node_id, port in controllers.items()],
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "default.replication.factor": factor,
        "min.insync.replicas": min_isr,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": min_isr,
    }


def _new_cluster_id() -> str:
    """16 random bytes as Kafka writes them. A dash first would be taken for an option."""
    while True:
        text = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text
