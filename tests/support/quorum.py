"""Nodes of a metadata quorum whose voters are in its log (KIP-853): formatted by `barnabas format`, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from broker.server.formatting import new_id
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponsePartitionData,
)
from protocol.uuids import uuid_to_text
from tests.support.broker import BrokerProcess
from tests.support.process import free_port
from tests.support.wire import WireClient

CLUSTER_ID = "3Db5QLSqSZieL3rJBUUegA"
WAIT_MAX_S = 120.0
READY = re.compile(r"^barnabas \S+ ready ", re.MULTILINE)


class QuorumNode(BrokerProcess):
    """A node that may be no broker: it is ready when it says so."""

    def __init__(
        self, directory: Path, node_id: int, roles: str, controller_port: int, bootstrap: str, settings: Mapping[str, str]
    ) -> None:
        super().__init__(directory / f"node{node_id}", {"barnabas.auto.format": "false", **settings})
        self.node_id = node_id
        self.controller_port = controller_port
        self.log_start = 0
        listeners = [f"PLAINTEXT://{self.host}:{self.port}"] if "broker" in roles else []
        listeners += [f"CONTROLLER://{self.host}:{controller_port}"] if "controller" in roles else []
        self.settings |= {
            "node.id": str(node_id),
            "process.roles": roles,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": bootstrap,
            "listeners": ",".join(listeners),
        }

    def format(self, *options: str) -> None:
        super().format(CLUSTER_ID, *options)

    def launch(self) -> None:
        self.log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        super().launch()

    def serves(self) -> bool:
        return READY.search(self.log_path.read_text()[self.log_start :]) is not None

    def write_properties(self) -> Path:
        """What the node is started with, as a file."""
        path = self.directory / "server.properties"
        settings = {"log.dirs": str(self.data_dir), **self.settings}
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path


class DynamicQuorum:
    """Owns its nodes. The first ones are the voters that every node was formatted with."""

    node_class = QuorumNode

    def __init__(self, directory: Path, roles: Mapping[int, str], settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.settings = settings or {}
        self.nodes: dict[int, QuorumNode] = {}
        self.directory_ids = {node_id: new_id(os.urandom) for node_id in roles}
        self._ports = {node_id: free_port() for node_id in roles}
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        voters = ",".join(f"{node_id}@127.0.0.1:{port}:{self.directory_id(node_id)}" for node_id, port in self._ports.items())
        for node_id, role in roles.items():
            self._make(node_id, role, self._ports[node_id]).format("--initial-controllers", voters)

    def directory_id(self, node_id: int) -> str:
        return uuid_to_text(self.directory_ids[node_id])

    def add(self, node_id: int, roles: str, **settings: str) -> QuorumNode:
        """A node that is no voter yet; settings are given with underscores for dots."""
        node = self._make(node_id, roles, free_port(), {name.replace("_", "."): value for name, value in settings.items()})
        node.format("--no-initial-controllers")
        return node

    def start(self) -> None:
        with ThreadPoolExecutor(len(self.nodes)) as threads:
            list(threads.map(QuorumNode.launch, self.nodes.values()))
        for node in self.nodes.values():
            node.wait_ready()

    def describe(self) -> DescribeQuorumResponsePartitionData:
        """The quorum as its leader tells it, asked by a broker."""
        topic = DescribeQuorumRequestTopicData(
            topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartitionData(partition_index=0)]
        )
        return self.ask(DescribeQuorumRequest(topics=[topic]), 2).topics[0].partitions[0]

    def ask(self, request: Any, version: int) -> Any:
        """The answer of the first broker that runs."""
        node = next(node for node in self.nodes.values() if "broker" in node.settings["process.roles"] and node.is_running)
        with WireClient(node.host, node.port) as client:
            return client.request(request, version)

    def voters(self) -> set[int]:
        return {voter.replica_id for voter in self.describe().current_voters}

    def kill(self) -> None:
        for node in self.nodes.values():
            if node.is_running:
                node.kill()

    def _make(self, node_id: int, roles: str, port: int, settings: Mapping[str, str] | None = None) -> QuorumNode:
        own = {**self.settings, **(settings or {})}
        node = self.nodes[node_id] = self.node_class(self.directory, node_id, roles, port, self.bootstrap, own)
        return node


@contextmanager
def dynamic_quorum(directory: Path, roles: Mapping[int, str], settings: Mapping[str, str] | None = None) -> Iterator[DynamicQuorum]:
    """Formatted and started; killed at the end."""
    quorum = DynamicQuorum(directory, roles, settings)
    try:
        quorum.start()
        yield quorum
    finally:
        quorum.kill()


def until(is_so: Callable[[], bool], what: str) -> None:
    """Returns once it is so. What a quorum without a leader gives rise to counts as not yet."""
    deadline_s = time.monotonic() + WAIT_MAX_S
    while True:
        with contextlib.suppress(OSError, EOFError, LookupError):
            if is_so():
                return
        assert time.monotonic() < deadline_s, what
        time.sleep(0.05)
