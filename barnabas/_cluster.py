"""`barnabas.Cluster`: brokers of one cluster, each in a process of its own, for as long as a `with` block."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

from ._broker import START_TIMEOUT_S, Broker, check_config, overrides_of
from ._create_topic import partitions_by_topic
from ._errors import BrokerError
from ._find_leader import Leader, find_leader
from ._process import HOST, BrokerProcess, reserve_port

if TYPE_CHECKING:
    from ._secure import Administrator

VOTERS_MAX = 3
REPLICATION_FACTOR_MAX = 3
LEADER_TIMEOUT_S = 30.0
LEADER_POLL_S = 0.05


class Cluster:
    """Brokers on 127.0.0.1, on free ports, with data in temporary directories: `brokers[0]` has node id 1, and so on.

    Each is a `Broker`, to be stopped, killed and started by itself. Of three and more the first three are the controllers as well, so
    that any one may be away; of fewer the first is. Topics have three replicas, or as many as there are brokers, and
    min.insync.replicas is one less; `config` holds other properties of all. `topics` are there once it has started, as in `Broker`.
    With `secure` all listeners have TLS and SASL, also the controllers', with one authority, and `client_config` tells clients how to log
    in. `with` starts and closes it; without `with`, `start` and `close` do. It ends with the process that started it, however that ends.
    """

    def __init__(
        self,
        brokers: int = 3,
        config: Mapping[str, object] | None = None,
        topics: Mapping[str, int] | Iterable[str] = (),
        *,
        secure: bool = False,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster of {brokers} brokers")
        check_config(config or {}, is_secure=secure)
        self._topics = partitions_by_topic(topics)
        cluster_id = _new_cluster_id()
        ports = [_Port() for _ in range(brokers)]
        controllers = {node_id: _Port() for node_id in range(1, 1 + (VOTERS_MAX if brokers >= VOTERS_MAX else 1))}
        shared = {**_shared_settings(brokers, controllers, is_secure=secure), **(config or {})}
        self._security = _Security() if secure else None
        self.brokers = [
            ClusterBroker(node_id, port, controllers.get(node_id), shared, cluster_id, start_timeout_s, self._security)
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
        for broker in reversed(self.brokers):  # the others may be putting keys into the directory of the first
            broker.close()

    def interrupt(self) -> None:
        """For another thread: end the processes at once, so that a `start` or `stop` under way fails."""
        for broker in self.brokers:
            broker.interrupt()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, also of those that do not run."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def client_config(self, user: str | None = None) -> dict[str, str]:
        """How librdkafka's clients connect, to whichever of the brokers; as `Broker.client_config`. All brokers that run know `user` then.

        Raises BrokerError where the cluster is not secure and a user is named, or no broker is running."""
        broker = next(iter(self._running()), None)
        if broker is None:
            raise BrokerError("no broker of the cluster is running")
        return broker.client_config(user) | {"bootstrap.servers": self.bootstrap_servers}

    @property
    def ca_file(self) -> str:
        """Of a secure cluster: the file of the authority that its clients have to trust, in PEM; gone after `close`."""
        return self.brokers[0].ca_file

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
                while other.find_leader(name, 0) is None and time.monotonic() < deadline:
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
                leader = broker.find_leader(topic, partition)
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
        self,
        node_id: int,
        port: _Port,
        controller: _Port | None,
        config: Mapping[str, object],
        cluster_id: str,
        start_timeout_s: float,
        security: _Security | None,
    ) -> None:
        self.node_id = node_id
        listeners = [f"{'PLAINTEXT' if security is None else 'SASL_SSL'}://{HOST}:{port.number}"]
        if controller is not None:
            listeners.append(f"CONTROLLER://{HOST}:{controller.number}")
        roles = "broker" if controller is None else "broker,controller"
        settings = {**config, "node.id": node_id, "process.roles": roles, "listeners": listeners}
        reservations = [each.reservation for each in (port, controller) if each is not None and each.reservation is not None]
        process = BrokerProcess(
            overrides_of(settings),
            is_port_given=True,
            start_timeout_s=start_timeout_s,
            cluster_id=cluster_id,
            is_secure=security is not None,
            keys_of=security.processes[0] if security is not None and security.processes else None,
            reservations=reservations,
        )
        self._adopt(process, {}, is_secure=security is not None)
        self._security = security
        if security is not None:
            security.processes.append(process)

    def launch(self) -> None:
        """Start its process and return at once; `wait_ready` comes next."""
        self._check_owner()
        self._process.launch()

    def wait_ready(self) -> None:
        """Wait until it serves."""
        self._process.wait_ready()

    def find_leader(self, topic: str, partition: int) -> Leader | None:
        """What it knows of a partition's leader; None if it does not know the partition. Raises OSError where it does not answer."""
        return find_leader((self.host, self.port), topic, partition, self._login())

    def _admin(self) -> Administrator:
        return super()._admin() if self._security is None else self._security.administrator()

    def _addresses(self) -> list[tuple[str, int]]:
        others = [] if self._security is None else self._security.addresses()
        return list(dict.fromkeys([*super()._addresses(), *others]))


class _Security:
    """What the brokers of a secure cluster share: the keys in the directory of the first, the administrator, and the users that it makes.

    It knows their processes, not them: a broker that nobody holds any more ends at once, without the cycles' collector."""

    def __init__(self) -> None:
        self.processes: list[BrokerProcess] = []
        self._administrator: Administrator | None = None

    def administrator(self) -> Administrator:
        from ._secure import Administrator  # late: ssl takes 30 ms to import

        if self._administrator is None:
            started = next((process for process in self.processes if process.ready), None)
            if started is None:
                raise BrokerError("the cluster was not started: use `with barnabas.Cluster() as cluster:`, or call start()")
            self._administrator = Administrator(started.ready["data_dir"])
        return self._administrator

    def addresses(self) -> list[tuple[str, int]]:
        """Of the brokers that run."""
        return [(str(each.ready["host"]), int(each.ready["port"])) for each in self.processes if each.is_running and each.ready]


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


def _shared_settings(brokers_count: int, controllers: Mapping[int, _Port], *, is_secure: bool) -> dict[str, object]:
    factor = min(brokers_count, REPLICATION_FACTOR_MAX)
    min_isr = max(factor - 1, 1)
    return {
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": [f"{node_id}@{HOST}:{port.number}" for node_id, port in controllers.items()],
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SASL_SSL"
        if is_secure
        else "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
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
