"""Cluster: the brokers of one cluster, their topics and coordinators, by blocking requests that are repeated until a deadline.

One object serves one thread. Connections stay open until `close`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from ...protocol.errors import ErrorCode
from ...protocol.messages.find_coordinator import FindCoordinatorRequest
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ..errors import BrokerError, OptionError, RefusedError
from .connection import Address, Connection
from .security import Security

PLAINTEXT = Security()
BACKOFF_S = 0.05
DEFAULT_PORT = 9092

RETRIED = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.NOT_CONTROLLER, ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.BROKER_NOT_AVAILABLE,
    }
)  # fmt: skip
"""Errors after which the same request may succeed, at another broker perhaps."""


Place = tuple[str, int]
"""A topic and a partition."""


class CoordinatorKind(IntEnum):
    """What a coordinator is for: the codes of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class Topic(NamedTuple):
    """`leaders` has the node of each partition's leader, -1 for none; `epochs` the leader epochs."""

    topic_id: bytes
    leaders: Mapping[int, int]
    epochs: Mapping[int, int]

    @property
    def partitions_count(self) -> int:
        return len(self.leaders)


def parse_servers(text: str) -> list[Address]:
    """The addresses of `host:port,…`. OptionError if it is none."""
    found = []
    for part in filter(None, (each.strip() for each in text.split(","))):
        host, _, port = part.rpartition(":")
        if not host or not port.isdigit():
            host, port = part, str(DEFAULT_PORT)
        found.append(Address(host.strip("[]"), int(port)))
    if not found:
        raise OptionError(f"kafka.bootstrap.servers is {text!r}: it needs host:port, several separated by commas")
    return found


class Cluster:
    """`deadline_s` is how long a request is repeated until BrokerError, `timeout_s` how long one answer may take."""

    def __init__(self, servers: str, security: Security = PLAINTEXT, *, timeout_s: float = 30.0, deadline_s: float = 120.0) -> None:
        self.servers = servers
        self._bootstrap = parse_servers(servers)
        self._door = security.door()
        self._timeout_s = timeout_s
        self.deadline_s = deadline_s
        self._nodes: dict[int, Address] = {}
        self._topics: dict[str, Topic] = {}
        self._connections: dict[Address, Connection] = {}
        self._coordinators: dict[tuple[CoordinatorKind, str], int] = {}
        self.cluster_id = ""

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # -- what there is -------------------------------------------------------------------------------------------------

    def node_ids(self) -> list[int]:
        """The brokers that are there now."""
        self.refresh(())
        return sorted(self._nodes)

    def topic(self, name: str) -> Topic | None:
        """None if it does not exist. What was asked before is asked again by `refresh` alone."""
        if name not in self._topics:
            self.refresh((name,))
        return self._topics.get(name)

    def refresh(self, names: Iterable[str] | None) -> None:
        """Ask for the brokers and for these topics, None for all. BrokerError if no broker answers until the deadline."""
        asked = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        response = self.ask_any(request, _no_error)
        self.cluster_id = response.cluster_id or ""
        if response.brokers:
            self._nodes = {each.node_id: Address(each.host, each.port) for each in response.brokers}
        if asked is None:
            self._topics.clear()
        for each in response.topics:
            if each.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                self._topics.pop(each.name, None)
            elif each.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                leaders = {part.partition_index: part.leader_id for part in each.partitions}
                epochs = {part.partition_index: part.leader_epoch for part in each.partitions}
                self._topics[each.name] = Topic(each.topic_id, leaders, epochs)
            else:
                raise BrokerError(f"topic {each.name}: {describe(each.error_code)}")

    def topic_names(self) -> list[str]:
        """All topics that the client may see, but for internal ones."""
        response = self.ask_any(MetadataRequest(topics=None, allow_auto_topic_creation=False), _no_error)
        return sorted(each.name for each in response.topics if not each.is_internal)

    # -- requests ------------------------------------------------------------------------------------------------------

    def connection(self, node_id: int) -> Connection:
        """An open connection to the broker. OSError if it cannot be had."""
        address = self._nodes.get(node_id)
        if address is None:
            self.refresh(())
            address = self._nodes.get(node_id)
            if address is None:
                raise OSError(f"broker {node_id} is not there")
        return self._connect(address)

    def leader(self, topic: str, partition: int) -> int:
        """The node that leads it; -1 for none."""
        found = self.topic(topic)
        return -1 if found is None else found.leaders.get(partition, -1)

    def drop(self, connection: Connection) -> None:
        """Close a connection that has failed."""
        connection.close()
        for address, each in list(self._connections.items()):
            if each is connection:
                del self._connections[address]

    def ask_node(self, node_id: int, message: Any) -> Any:
        """OSError if the broker does not answer."""
        connection = self.connection(node_id)
        try:
            return connection.request(message)
        except OSError:
            self.drop(connection)
            raise

    def ask_any(self, message: Any, error_of: Callable[[Any], int]) -> Any:
        """The answer of whichever broker, asked again while its error is one of RETRIED."""
        return self._until(lambda: self._ask_any(message), error_of, lambda: None, type(message).__name__)

    def ask_each(self, message: Any, error_of: Callable[[Any], int]) -> list[Any]:
        """The answers of all brokers that are there. All are asked again while one does not answer, or has an error of RETRIED."""

        def first_retried(answers: list[Any]) -> int:
            return next((error_of(answer) for answer in answers if error_of(answer) in RETRIED), ErrorCode.NONE)

        def ask() -> list[Any]:
            return [self.ask_node(node_id, message) for node_id in self.node_ids()]

        found: list[Any] = self._until(ask, first_retried, lambda: None, type(message).__name__)
        return found

    def ask_controller(self, message: Any, error_of: Callable[[Any], int]) -> Any:
        """Brokers forward what is for the controller."""
        return self.ask_any(message, error_of)

    def ask_coordinator(
        self, kind: CoordinatorKind, key: str, message: Any, error_of: Callable[[Any], int], *, version: Callable[[Connection], int | None]
    ) -> Any:
        """The answer of the coordinator of a group or a transactional id. `version` is the newest version on that connection, None for
        the usual one. BrokerError at the deadline, RefusedError if there is no coordinator for the client."""

        def ask() -> Any:
            connection = self.connection(self._coordinator(kind, key))
            try:
                return connection.request(message, version_max=version(connection))
            except OSError:
                self.drop(connection)
                raise

        return self._until(ask, error_of, lambda: self._coordinators.pop((kind, key), None), type(message).__name__)

    def _coordinator(self, kind: CoordinatorKind, key: str) -> int:
        found = self._coordinators.get((kind, key))
        if found is None:
            answer = self.ask_any(FindCoordinatorRequest(key=key, key_type=kind), lambda answer: answer.error_code)
            if answer.error_code:
                raise RefusedError(f"the coordinator of {key}: {describe(answer.error_code)}")
            self._nodes[answer.node_id] = Address(answer.host, answer.port)
            found = self._coordinators[kind, key] = answer.node_id
        return found

    def _until(self, ask: Callable[[], Any], error_of: Callable[[Any], int], forget: Callable[[], Any], what: str) -> Any:
        deadline_s = time.monotonic() + self.deadline_s
        why = ""
        while True:
            try:
                answer = ask()
                if error_of(answer) not in RETRIED:
                    return answer
                why = describe(error_of(answer))
            except OSError as error:
                why = str(error)
            forget()
            if time.monotonic() >= deadline_s:
                raise BrokerError(f"{what.removesuffix('Request')} did not succeed within {self.deadline_s:.0f} s: {why}")
            time.sleep(BACKOFF_S)

    def _ask_any(self, message: Any) -> Any:
        why = ""
        for address in dict.fromkeys([*self._connections, *self._nodes.values(), *self._bootstrap]):
            try:
                return self._connect(address).request(message)
            except OSError as error:
                why = f"{address}: {error}"
                if address in self._connections:
                    self.drop(self._connections[address])
        raise OSError(f"no broker answers ({why})")

    def _connect(self, address: Address) -> Connection:
        found = self._connections.get(address)
        if found is not None and found.has_expired:
            self.drop(found)
            found = None
        if found is None:
            found = self._connections[address] = Connection(address, timeout_s=self._timeout_s, door=self._door)
        return found


_OPEN: dict[tuple[str, Security], Cluster] = {}


def open_cluster(servers: str, security: Security) -> Cluster:
    """What is open in this process already is used again: Python workers serve one task after another."""
    key = servers, security
    if key not in _OPEN:
        _OPEN[key] = Cluster(servers, security)
    return _OPEN[key]


def _no_error(_: object) -> int:
    """Of an answer whose errors are those of its topics."""
    return ErrorCode.NONE


def describe(code: int) -> str:
    """An error code in words."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
