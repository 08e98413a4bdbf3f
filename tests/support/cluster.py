"""A cluster of real processes: nodes of Barnabas, of Apache Kafka, or of both, on this machine.

    with Cluster(tmp_path) as cluster:                      three nodes of ours, each broker and voter
    with Cluster(tmp_path, [KAFKA, KAFKA, BARNABAS], settings={…}, node_settings={3: {"broker.rack": "b"}}) as cluster:

Node ids count from 1. A node keeps its ports and its data over `stop`, `kill` and `start`. What a test wants to know of the cluster it
asks over the wire, from whichever node answers.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from broker.metadata.features import ELR_FEATURE
from broker.server.formatting import new_id
from protocol.errors import ErrorCode
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponsePartitionData,
)
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponsePartition
from protocol.uuids import uuid_to_text
from tests.support.broker import BrokerProcess
from tests.support.cluster_network import ClusterNetwork
from tests.support.kafka import KafkaServer
from tests.support.ports import HOST, free_ports
from tests.support.process import READY_TIMEOUT_S, ServerProcess
from tests.support.wire import WireClient

T = TypeVar("T")

BARNABAS, KAFKA = "barnabas", "kafka"
KINDS: Mapping[str, type[BrokerProcess] | type[KafkaServer]] = {BARNABAS: BrokerProcess, KAFKA: KafkaServer}
CLUSTER_ID = "3Db5QLSqSZieL3rJBUUegA"
COMBINED, BROKER_ONLY, CONTROLLER_ONLY = "broker,controller", "broker", "controller"
# What the format command of either kind is told where they may share a cluster: the features that both have.
MIXED_FORMAT = ("--release-version", "4.0-IV3")
WITH_ELR = f"{ELR_FEATURE}=1"
"""A feature: eligible leader replicas (KIP-966)."""
WAIT_MAX_S = 120.0
POLL_INTERVAL_S = 0.05
LATEST = -1
ASK_TIMEOUT_S = 10.0  # of a node that runs; slow machines stand still for seconds
REPLICATION_FACTOR = 3


class Cluster:
    """Owns the processes of its nodes. `with` starts all of them and kills what still runs at the end."""

    def __init__(
        self,
        directory: Path,
        kinds: Sequence[str] = (BARNABAS, BARNABAS, BARNABAS),
        *,
        settings: Mapping[str, str] | None = None,
        node_settings: Mapping[int, Mapping[str, str]] | None = None,
        network: ClusterNetwork | None = None,
        data_dirs: Mapping[int, Path] | None = None,
        node_classes: Mapping[str, type[BrokerProcess] | type[KafkaServer]] = KINDS,
        format_words: Sequence[str] | None = None,
        features: Sequence[str] = (),
        initial_voters: Collection[int] = (),
        secure: str | None = None,
    ) -> None:
        """`settings` are every node's, `node_settings` those of one; process.roles among the latter is "broker,controller" if not given.
        `network` is where the nodes are, and the caller's to close; else they are on 127.0.0.1. `data_dirs` are those of nodes
        whose data are not beside their logs. `node_classes` are what runs a node of each kind. The nodes are formatted with
        `format_words`, which are MIXED_FORMAT by default where Kafka takes part, else none, and with these `features` (name=level). The
        voters are all controllers, for ever; or, if `initial_voters` are given, at first these, and then those that the log names
        (KIP-853). `secure` is the security protocol of the brokers' second listener, SECURE, by which they reach each other; controllers
        are reached by TLS then, with client certificates (tests/support/secured.py has the settings)."""
        self.secure_ports: dict[int, int] = {}
        self._secure = secure
        self.cluster_id = CLUSTER_ID
        self.directory = directory
        self.nodes: dict[int, ServerProcess] = {}
        self.controller_ports: dict[int, int] = {}
        self._settings = {**_replicated(len(kinds)), **(settings or {})}
        self._network = network
        self._data_dirs = data_dirs or {}
        self._node_classes = node_classes
        if format_words is None:
            format_words = MIXED_FORMAT if KAFKA in kinds else ()
        self._format_words = (*format_words, *(word for feature in features for word in ("--feature", feature)))
        self._initial_voters = {node_id: new_id(os.urandom) for node_id in initial_voters}  # with the ids of their directories
        node_settings, hosts = node_settings or {}, network.hosts if network is not None else {}
        ports = iter(free_ports(2 * len(kinds)))
        self.controller_ports = {
            node_id: next(ports) for node_id in _ids(kinds) if "controller" in _roles(node_settings.get(node_id, {})).split(",")
        }
        self._controllers = {node_id: f"{hosts.get(node_id, HOST)}:{port}" for node_id, port in self.controller_ports.items()}
        self.voters = ",".join(f"{node_id}@{address}" for node_id, address in self._controllers.items())
        for node_id, kind in zip(_ids(kinds), kinds, strict=True):
            self.add_node(node_id, kind, node_settings.get(node_id, {}), host=hosts.get(node_id, HOST), port=next(ports))

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # -- its nodes ------------------------------------------------------------------------------------------------

    def add_node(
        self, node_id: int, kind: str = BARNABAS, settings: Mapping[str, str] | None = None, *, host: str = HOST, port: int | None = None
    ) -> ServerProcess:
        """A formatted node that was not started yet; one that comes later is a broker unless `settings` say otherwise."""
        settings = dict(settings or {})
        roles = settings.setdefault("process.roles", COMBINED if node_id in self.controller_ports else BROKER_ONLY)
        node = self._node_classes[kind](self.directory / f"node{node_id}", {**self._settings, **settings})
        node.name, node.host, node.port = f"{kind} node {node_id}", host, port or free_ports(1)[0]
        listeners = {"broker": f"PLAINTEXT://{host}:{node.port}", "controller": f"CONTROLLER://{host}:{self.controller_ports.get(node_id)}"}
        node.settings |= {
            "node.id": str(node_id),
            **self._quorum_settings(),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners[role] for role in roles.split(",")),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
        if self._secure is not None:
            self._secure_node(node, node_id, self._secure)
        node.data_dir = self._data_dirs.get(node_id, node.data_dir)
        if self._network is not None:
            node.prefix = self._network.enter(node_id)
        format_words = (*self._format_words, *self._voters_format(node_id))
        if isinstance(node, BrokerProcess):
            node.format(self.cluster_id, *format_words)
        else:  # it is formatted at its first start
            node.cluster_id, node.format_arguments = self.cluster_id, format_words
        if roles == CONTROLLER_ONLY:
            node.port = self.controller_ports[node_id]
            node.serves = lambda: listens(node.host, node.port)  # type: ignore[method-assign]
        self.nodes[node_id] = node
        return node

    def _secure_node(self, node: ServerProcess, node_id: int, protocol: str) -> None:
        node.settings["listener.security.protocol.map"] = f"PLAINTEXT:PLAINTEXT,CONTROLLER:SSL,SECURE:{protocol}"
        node.settings["inter.broker.listener.name"] = "SECURE"
        if "PLAINTEXT:" in node.settings["listeners"]:
            port = self.secure_ports[node_id] = free_ports(1)[0]
            node.settings["listeners"] += f",SECURE://{node.host}:{port}"

    def _quorum_settings(self) -> dict[str, str]:
        if self._initial_voters:
            return {"controller.quorum.bootstrap.servers": ",".join(self._controllers.values())}
        return {"controller.quorum.voters": self.voters}

    def _voters_format(self, node_id: int) -> tuple[str, ...]:
        """The words of the format command that say who votes first."""
        if not self._initial_voters:
            return ()
        if node_id not in self._initial_voters:
            return ("--no-initial-controllers",)
        voters = [f"{each}@{self._controllers[each]}:{uuid_to_text(directory_id)}" for each, directory_id in self._initial_voters.items()]
        return ("--initial-controllers", ",".join(voters))

    def start(self, *node_ids: int, timeout_s: float = READY_TIMEOUT_S) -> Self:
        """Start these nodes, or all that do not run, together: none is ready before a majority of the voters is there."""
        nodes = [self.nodes[node_id] for node_id in node_ids] or [node for node in self.nodes.values() if not node.is_running]
        with ThreadPoolExecutor(max(len(nodes), 1)) as threads:  # a Kafka node is formatted as it is launched
            list(threads.map(lambda node: node.launch(), nodes))
        for node in nodes:
            node.wait_ready(timeout_s=timeout_s)
        return self

    def stop(self, *node_ids: int) -> dict[int, int]:
        """SIGTERM to these nodes, or all that run, together. Returns their exit statuses."""
        stopping = node_ids or self.running
        with ThreadPoolExecutor(max(len(stopping), 1)) as threads:
            return dict(zip(stopping, threads.map(lambda node_id: self.nodes[node_id].stop(), stopping), strict=True))

    def kill(self, *node_ids: int) -> None:
        """kill -9 of these nodes, or of all that run."""
        for node_id in node_ids or self.running:
            self.nodes[node_id].kill()

    def pause(self, *node_ids: int) -> None:
        """SIGSTOP: the nodes keep their connections and answer nothing, until `resume`."""
        for node_id in node_ids:
            self.nodes[node_id].freeze()

    def resume(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.nodes[node_id].thaw()

    def restart(self, node_id: int, *, hard: bool = False) -> None:
        """Stop (or with `hard` kill) one node and start it again."""
        self.nodes[node_id].restart(hard=hard)

    def close(self) -> None:
        """Kill what runs. The data stay."""
        self.kill()

    @property
    def running(self) -> tuple[int, ...]:
        """The nodes whose process is there, also if it is paused."""
        return tuple(node_id for node_id, node in self.nodes.items() if node.is_running)

    @property
    def brokers(self) -> dict[int, ServerProcess]:
        return {node_id: node for node_id, node in self.nodes.items() if node.settings["process.roles"] != CONTROLLER_ONLY}

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.brokers.values())

    # -- what it says ---------------------------------------------------------------------------------------------

    def ask(self, message: Any, version: int) -> Any:
        """The answer of the first running broker that gives one. OSError when none does."""
        failure: OSError | EOFError = ConnectionRefusedError("no broker runs")
        for node_id in self._running_brokers():
            try:
                return self.ask_node(node_id, message, version)
            except (OSError, EOFError) as e:
                failure = e
        raise OSError(f"no broker answers: {failure}") from failure

    def ask_node(self, node_id: int, message: Any, version: int) -> Any:
        """What this broker answers. OSError or EOFError when it does not."""
        node = self.nodes[node_id]
        with WireClient(node.host, node.port, timeout_s=ASK_TIMEOUT_S) as client:
            return client.request(message, version)

    def metadata(self, *topics: str) -> MetadataResponse:
        """Metadata of these topics, or of all, as the first running broker knows it."""
        response: MetadataResponse = self.ask(metadata_request(*topics), 12)
        return response

    def partition(self, topic: str, partition: int = 0) -> MetadataResponsePartition:
        """One partition as Metadata tells it. LookupError while it is not there."""
        (answer,) = self.metadata(topic).topics
        return next((each for each in answer.partitions if each.partition_index == partition), None) or _raise_missing(topic, partition)

    def quorum(self) -> DescribeQuorumResponsePartitionData:
        """What the active controller says of the metadata quorum. LookupError while there is none."""
        asked = DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartitionData()])
        for node_id, port in self.controller_ports.items():
            if node_id not in self.running or self.nodes[node_id].is_frozen:
                continue
            try:
                with WireClient(self.nodes[node_id].host, port, timeout_s=ASK_TIMEOUT_S) as client:
                    response = client.request(DescribeQuorumRequest(topics=[asked]), 1)
            except (OSError, EOFError):
                continue
            partition = response.topics[0].partitions[0] if response.topics else None
            if response.error_code == ErrorCode.NONE and partition is not None and partition.error_code == ErrorCode.NONE:
                answer: DescribeQuorumResponsePartitionData = partition
                return answer
        raise LookupError("no active controller")

    def controller_id(self) -> int:
        """The node that leads the metadata quorum. Waits until there is one."""
        return self.wait_for(lambda: self.quorum().leader_id, "an active controller")

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        assignment: Sequence[Sequence[int]] = (),
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; waits until each partition has a leader and all its replicas in sync. `assignment`: the brokers of each
        partition, the leader first; else the controller places them."""
        replicas = min(REPLICATION_FACTOR, len(self.brokers)) if replication_factor is None else replication_factor
        if assignment:
            partitions = replicas = -1
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[CreatableReplicaAssignment(partition_index=index, broker_ids=list(each)) for index, each in enumerate(assignment)],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()],
        )

        def create() -> bool:
            response = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 5)
            return response.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

        self.wait_for(create, f"topic {name} to be created")
        self.wait_in_sync(name)

    def wait_in_sync(self, *topics: str, timeout_s: float = WAIT_MAX_S) -> None:
        """Wait until every partition of these topics (or of all) has a leader and all its replicas in its ISR, as every running broker
        knows it: one that stood still a moment ago would tell what was so before."""

        def in_sync() -> bool:
            answers = [self.ask_node(node_id, metadata_request(*topics), 12) for node_id in self._running_brokers()]
            return bool(answers) and all(
                topic.error_code == ErrorCode.NONE and topic.partitions and all(map(_is_in_sync, topic.partitions))
                for answer in answers
                for topic in answer.topics
            )

        self.wait_for(in_sync, f"all replicas of {topics or 'all topics'} to be in sync", timeout_s=timeout_s)

    def wait_readable(self, topic: str, end_offset: int, partition: int = 0) -> None:
        """Wait until consumers can read all records below `end_offset`: a new leader's high watermark is behind until its followers have
        fetched from it."""
        asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=LATEST)])

        def is_readable() -> bool:
            leader_id = self.partition(topic, partition).leader_id
            answer = self.ask_node(leader_id, ListOffsetsRequest(replica_id=-1, topics=[asked]), 7).topics[0].partitions[0]
            return answer.error_code == ErrorCode.NONE and answer.offset >= end_offset

        self.wait_for(is_readable, f"{topic}-{partition} to be readable up to {end_offset}")

    def wait_known(self, topic: str, holds: Callable[[MetadataResponsePartition], bool], what: str, partition: int = 0) -> None:
        """Wait until every running broker tells of the partition what `holds`: they hear of a change one after another."""

        def all_tell() -> bool:
            answers = [self.ask_node(node_id, metadata_request(topic), 12) for node_id in self._running_brokers()]
            return bool(answers) and all(holds(answer.topics[0].partitions[partition]) for answer in answers)

        self.wait_for(all_tell, what)

    def wait_for(self, ask: Callable[[], T], what: str, *, timeout_s: float = WAIT_MAX_S) -> T:
        """What `ask` returns once that is true; until then it may return false, or raise what a cluster in trouble gives rise to."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                if answer := ask():
                    return answer
                failure: Exception | None = None
            except (OSError, EOFError, LookupError) as e:
                failure = e
            if time.monotonic() > deadline_s:
                raise AssertionError(f"waited {timeout_s} s for {what}: {failure}\n{self.log_tails()}") from failure
            time.sleep(POLL_INTERVAL_S)

    def _running_brokers(self) -> list[int]:
        """Those that stand still come last: they do not answer."""
        return sorted((node_id for node_id in self.running if node_id in self.brokers), key=lambda node_id: self.nodes[node_id].is_frozen)

    def log_tails(self) -> str:
        """The end of each node's log, for a failure's message."""
        return "\n".join(f"--- {node.name}\n{node.log_tail()}" for node in self.nodes.values())


def topics_of(node: ServerProcess) -> set[str]:
    """The names of all topics, as this broker knows them."""
    with WireClient(node.host, node.port) as client:
        return {topic.name for topic in client.request(MetadataRequest(topics=None), 12).topics}


def listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def metadata_request(*topics: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics] or None)


def _ids(kinds: Sequence[str]) -> Iterable[int]:
    return range(1, len(kinds) + 1)


def _roles(settings: Mapping[str, str]) -> str:
    return settings.get("process.roles", COMBINED)


def _replicated(node_count: int) -> dict[str, str]:
    """Internal topics as replicated as the cluster can have them, rather than the single node's of COMMON_SETTINGS."""
    factor = str(min(REPLICATION_FACTOR, node_count))
    return {
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": str(min(2, node_count)),
        "default.replication.factor": factor,
        "min.insync.replicas": str(min(2, node_count)),
    }


def _is_in_sync(partition: MetadataResponsePartition) -> bool:
    return partition.leader_id >= 0 and set(partition.isr_nodes) == set(partition.replica_nodes)


def _raise_missing(topic: str, partition: int) -> MetadataResponsePartition:
    raise LookupError(f"no partition {topic}-{partition}")
