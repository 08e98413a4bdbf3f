"""Clusters on demand, for test programs in other languages: a connection is a cluster, which ends with it.

A program connects and sends one line of JSON for each command; each is answered with a line of JSON, which holds "error" if the command
failed. Brokers are named by their place, from 0. The controller is a node of its own, so that brokers can be stopped without it.

    {"op": "open", "settings": [{…}, …], "features": ["transaction.version=1"], "users": {"CLIENT": "client"}}
        a broker for each of the settings, with a listener for each of the users; none runs
    {"op": "start", "brokers": [0, 2]}                          returns when they serve and know of each other
    {"op": "stop", "broker": 1}                                 SIGTERM; returns when the process has ended
    {"op": "partitions", "broker": 0, "topic": "t"}             {"leaders": [0, 1, -1, …]} as this broker knows them, or null
    {"op": "raise_epoch", "transactional_id": "t", "epoch": 9}  initialises the id's producer as often as it takes
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.suites.login_proxy import LoginProxy
from tests.support.cluster import BROKER_ONLY, CONTROLLER_ONLY, Cluster
from tests.support.ports import HOST, free_ports
from tests.support.process import ServerProcess
from tests.support.secured import PASSWORD, PLAIN_MODULE
from tests.support.wire import WireClient

# What Kafka takes where a test says nothing. Cluster itself suits its settings to the number of nodes.
DEFAULTS = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
}
JOIN_MAX_S = 60.0
TRANSACTION = 1  # FindCoordinator's key type
TIMEOUT_MS = 60_000  # of transactions that are never begun


class ClusterService:
    """Listens on a port of its own. `with` closes it, and with it all clusters whose program is still there."""

    def __init__(self, kind: str, directory: Path) -> None:
        """`kind` is what the nodes run, "barnabas" or "kafka"; `directory` is where they have their data and logs."""
        self._kind = kind
        self._directory = directory
        self._listener = socket.create_server((HOST, 0))
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="clusters", daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        return f"{HOST}:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for each in (self._listener, *self._connections):
            each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(JOIN_MAX_S)
        for each in (self._listener, *self._connections):
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            directory = self._directory / f"cluster{len(self._connections)}"
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=_serve, args=(connection, directory, self._kind), daemon=True))
            self._threads[-1].start()


def _serve(connection: socket.socket, directory: Path, kind: str) -> None:
    cluster: _Commanded | None = None
    try:
        with connection.makefile("rw") as lines:
            for line in lines:
                command = json.loads(line)
                try:
                    if command["op"] == "open":
                        cluster = _Commanded(directory, kind, command["settings"], command["features"], command.get("users") or {})
                        answer = cluster.addresses()
                    else:
                        assert cluster is not None, "no cluster was opened"
                        answer = cluster.do(command)
                except Exception as e:  # the program tells it to its user
                    answer = {"error": f"{type(e).__name__}: {e}"}
                lines.write(json.dumps(answer) + "\n")
                lines.flush()
    except OSError:  # the program is gone
        pass
    finally:
        if cluster is not None:
            cluster.close()


class _Commanded:
    """A cluster whose brokers are named by their place."""

    def __init__(
        self, directory: Path, kind: str, settings: Sequence[dict[str, str]], features: Sequence[str], users: Mapping[str, str]
    ) -> None:
        count = len(settings)
        roles = [BROKER_ONLY] * count + [CONTROLLER_ONLY]
        node_settings = [*settings, settings[0]]  # what topics are created with is the controller's
        self.cluster = Cluster(
            directory,
            [kind] * (count + 1),
            settings=DEFAULTS,
            node_settings={node_id: {**node_settings[node_id - 1], "process.roles": role} for node_id, role in enumerate(roles, 1)},
            format_words=(),
            features=features,
        )
        self._controller_id = count + 1
        self._proxies: list[LoginProxy] = []
        self._listeners = [self._add_listeners(node, users) for node in self.cluster.brokers.values()]
        if users:
            for node in self.cluster.nodes.values():  # the nodes themselves, and what looks at them, have no login
                node.settings["super.users"] = f"{node.settings.get('super.users', '')};User:ANONYMOUS".removeprefix(";")

    def _add_listeners(self, node: ServerProcess, users: Mapping[str, str]) -> dict[str, str]:
        """The address of each listener. Who connects there is that listener's user."""
        found, advertised = {}, node.settings["listeners"]
        for (name, user), port in zip(users.items(), free_ports(len(users)), strict=True):
            proxy = LoginProxy(user, PASSWORD, port)
            self._proxies.append(proxy)
            found[name] = proxy.address
            advertised += f",{name}://{proxy.address}"
            node.settings["listeners"] += f",{name}://{HOST}:{port}"
            node.settings["listener.security.protocol.map"] += f",{name}:SASL_PLAINTEXT"
            jaas = f'{PLAIN_MODULE} required user_{user}="{PASSWORD}";'
            node.settings |= {"sasl.enabled.mechanisms": "PLAIN", f"listener.name.{name.lower()}.plain.sasl.jaas.config": jaas}
        if users:
            node.settings["advertised.listeners"] = advertised
        return found

    def close(self) -> None:
        self.cluster.close()
        for proxy in self._proxies:
            proxy.close()

    def addresses(self) -> dict[str, Any]:
        return {"addresses": [node.bootstrap for node in self.cluster.brokers.values()], "listeners": self._listeners}

    def do(self, command: dict[str, Any]) -> dict[str, Any]:
        match command["op"]:
            case "start":
                starting = [broker + 1 for broker in command["brokers"]]
                if self._controller_id not in self.cluster.running:
                    starting.append(self._controller_id)
                self.cluster.start(*starting)
                self._wait_acquainted()
                return {}
            case "stop":
                self.cluster.stop(command["broker"] + 1)
                return {}
            case "raise_epoch":
                self._raise_epoch(command["transactional_id"], command["epoch"])
                return {}
            case "partitions":
                return {"leaders": self._leaders(command["broker"] + 1, command["topic"])}
            case other:
                raise ValueError(f"unknown command {other}")

    def _wait_acquainted(self) -> None:
        """Wait until each running broker knows all of them."""
        running = set(self.cluster.running) - {self._controller_id}

        def are_acquainted() -> bool:
            answers = [self.cluster.ask_node(node_id, MetadataRequest(topics=[]), 12) for node_id in running]
            return all({broker.node_id for broker in answer.brokers} >= running for answer in answers)

        self.cluster.wait_for(are_acquainted, "brokers to know each other")

    def _raise_epoch(self, transactional_id: str, epoch: int) -> None:
        """As new producers would that take the id over from each other."""
        answer = self.cluster.ask(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id]), 4)
        (coordinator,) = answer.coordinators
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        with WireClient(coordinator.host, coordinator.port) as client:
            reached = -1
            while reached < epoch:
                answer = client.request(request, 4)
                if answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:  # it still completes the last one
                    continue
                if answer.error_code != ErrorCode.NONE:
                    raise KafkaError(ErrorCode(answer.error_code))
                reached = answer.producer_epoch

    def _leaders(self, node_id: int, name: str) -> list[int] | None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        (topic,) = self.cluster.ask_node(node_id, request, 12).topics
        if topic.error_code != ErrorCode.NONE:
            return None
        partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
        return [max(partition.leader_id - 1, -1) for partition in partitions]
