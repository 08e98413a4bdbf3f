"""The folder of a local cluster: what its nodes are, where they listen, and their data.

    DIR/cluster.json      cluster id, the voters' ports, the brokers' ports, whether it is secured
    DIR/node-1/data       log.dirs of node 1, formatted
    DIR/node-1/log        what node 1 has logged, over all its starts
    DIR/.lock             held while a `cluster up` runs there

Node ids count from 1. Of three and more nodes the first three are the quorum (controller and broker), of fewer the first alone; who votes
is settled when the cluster is formed. A node that is added later is a broker.
"""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from broker.cli.cluster_security import SETTINGS_FILE, format_secured, secure
from broker.cli.private_files import make_private_directory
from broker.server.formatting import FormatError, format_directories, new_id
from config.loading import load_server_config, read_properties
from config.properties import ConfigError
from protocol.uuids import uuid_to_text
from storage.errors import DirectoryInUseError, StorageError
from storage.files import lock_directory

HOST = "127.0.0.1"
DEFAULT_DIRECTORY = "cluster"
FILE_NAME = "cluster.json"
VOTERS_COUNT = 3
REPLICATION_FACTOR_MAX = 3
# Below the ports that Linux gives to outgoing connections: one of those would keep a node from coming back.
CONTROLLER_PORTS = range(20_000, 32_000)
OWN_OF_EACH_NODE = ("node.id", "broker.id", "log.dirs", "log.dir", "metadata.log.dir")


class FolderError(Exception):
    """The folder cannot be used; `str()` is the line to print."""


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    """What cluster.json says. A port of 0 is one that the node takes at its start."""

    directory: Path
    cluster_id: str
    controller_ports: Mapping[int, int]
    ports: Mapping[int, int]
    is_secure: bool = False
    """With TLS, SASL and ACLs (cluster_security.py)."""

    @property
    def node_ids(self) -> list[int]:
        return sorted(self.ports)

    def data_directory(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}" / "data"

    def log_path(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}" / "log"

    @property
    def settings_file(self) -> Path | None:
        """What the nodes of a secured cluster have in common, with a password."""
        return self.directory / SETTINGS_FILE if self.is_secure else None

    def settings(self, node_id: int, overrides: Sequence[str]) -> list[str]:
        """The node's settings as `--override` takes them, those of the user last."""
        is_voter = node_id in self.controller_ports
        clients, controllers = ("SASL_SSL", "SSL") if self.is_secure else ("PLAINTEXT", "PLAINTEXT")
        listeners = [f"{clients}://{HOST}:{self.ports[node_id]}"]
        if is_voter:
            listeners.append(f"CONTROLLER://{HOST}:{self.controller_ports[node_id]}")
        factor = min(len(self.ports), REPLICATION_FACTOR_MAX)
        return [
            f"node.id={node_id}",
            f"process.roles={'broker,controller' if is_voter else 'broker'}",
            f"listeners={','.join(listeners)}",
            f"listener.security.protocol.map={clients}:{clients},CONTROLLER:{controllers}",
            *([f"inter.broker.listener.name={clients}"] if self.is_secure else []),
            "controller.listener.names=CONTROLLER",
            "controller.quorum.voters=" + ",".join(f"{voter}@{HOST}:{port}" for voter, port in self.controller_ports.items()),
            f"default.replication.factor={factor}",
            f"min.insync.replicas={max(factor - 1, 1)}",
            f"offsets.topic.replication.factor={factor}",
            "offsets.topic.num.partitions=4",
            f"transaction.state.log.replication.factor={factor}",
            f"transaction.state.log.min.isr={max(factor - 1, 1)}",
            "transaction.state.log.num.partitions=4",
            *overrides,
        ]

    def format(self, overrides: Sequence[str]) -> None:
        """Give each node's directory its identity, where it has none. Raises ConfigError for a wrong setting, or FolderError."""
        for key in OWN_OF_EACH_NODE:
            if any(override.partition("=")[0].strip() == key for override in overrides):
                raise FolderError(f"--override {key} is not possible: each node has its own")
        common = [] if self.settings_file is None else [f"{key}={value}" for key, value in read_properties(self.settings_file).items()]
        for node_id in self.node_ids:
            settings = [*common, *self.settings(node_id, overrides), f"log.dirs={self.data_directory(node_id)}"]
            config = load_server_config(None, {}, settings)
            for key in config.unknown_keys:
                raise ConfigError(key, "", "", message=f"Unknown configuration {key}")
            try:
                if self.is_secure:
                    format_secured(config, self.cluster_id, self.directory)
                else:
                    format_directories(config, self.cluster_id, ignore_formatted=True, random_bytes=os.urandom)
            except (FormatError, StorageError, OSError) as e:
                raise FolderError(f"node {node_id}: {e}") from e

    def with_ports(self, ports: Mapping[int, int]) -> ClusterFolder:
        return replace(self, ports=dict(ports))

    def save(self) -> None:
        """Write cluster.json, whole or not at all."""
        said = {"cluster_id": self.cluster_id, "controller_ports": self.controller_ports, "ports": self.ports}
        text = json.dumps(said | ({"is_secure": True} if self.is_secure else {}), indent=2)
        path = self.directory / FILE_NAME
        temporary = path.with_suffix(".tmp")
        temporary.write_text(text + "\n")
        temporary.replace(path)


def lock_folder(directory: Path, *, is_secure: bool) -> None:
    """Make the folder if it is missing, and keep every other `cluster up` out of it until this process ends. That of a secured cluster is
    for this user alone.

    A second one would give the folder other ports, or another cluster, under the running nodes. Raises FolderError.
    """
    try:
        if is_secure:
            make_private_directory(directory)
        directory.mkdir(parents=True, exist_ok=True)
        lock_directory(directory)
    except DirectoryInUseError as e:
        raise FolderError(f"a cluster runs in {directory} already; --directory takes another folder") from e
    except StorageError as e:
        raise FolderError(str(e)) from e
    except OSError as e:
        raise FolderError(f"cannot use {directory}: {e.strerror}") from e


def open_folder(directory: Path, brokers_count: int | None, first_port: int | None, *, is_secure: bool) -> ClusterFolder:
    """The cluster in `directory`, or a new one there. `brokers_count` None: as many as there are, 3 at first; `first_port` None: as before.

    `directory` exists and is locked. Raises FolderError where the folder cannot be used so.
    """
    try:
        found = read_folder(directory)
        if found is None:
            folder = _new_folder(directory, brokers_count or VOTERS_COUNT, first_port, is_secure=is_secure)
            if is_secure:
                secure(directory)
        elif found.is_secure != is_secure:
            raise FolderError(_how_it_began(found))
        else:
            folder = _grown(found, brokers_count or len(found.ports), first_port)
        folder.save()
    except FileExistsError as e:
        raise FolderError(f"{e.filename} is there already, and no {FILE_NAME}: name an empty or a new folder") from e
    except OSError as e:
        raise FolderError(f"cannot use {directory}: {e.strerror}") from e
    return folder


def _how_it_began(found: ClusterFolder) -> str:
    if found.is_secure:
        return f"the cluster in {found.directory} is a secured one: give --secure, or --directory for another one"
    return f"the cluster in {found.directory} was begun without --secure, and has no keys and no users: --directory takes another folder"


def read_folder(directory: Path) -> ClusterFolder | None:
    """The cluster in `directory`; None if there is none. Raises FolderError for a cluster.json that cannot be understood."""
    try:
        said = json.loads((directory / FILE_NAME).read_text())
        controller_ports, ports = (
            {int(node_id): int(port) for node_id, port in said[key].items()} for key in ("controller_ports", "ports")
        )
        return ClusterFolder(directory, str(said["cluster_id"]), controller_ports, ports, bool(said.get("is_secure", False)))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, AttributeError, TypeError) as e:
        raise FolderError(f"{directory / FILE_NAME} cannot be understood: {e}") from e


def _new_folder(directory: Path, brokers_count: int, first_port: int | None, *, is_secure: bool) -> ClusterFolder:
    voters = range(1, 1 + (VOTERS_COUNT if brokers_count >= VOTERS_COUNT else 1))
    cluster_id = uuid_to_text(new_id(os.urandom))
    controller_ports = dict(zip(voters, _free_ports(len(voters)), strict=True))
    ports = _ports(range(1, brokers_count + 1), 9092 if first_port is None else first_port)
    return ClusterFolder(directory, cluster_id, controller_ports, ports, is_secure)


def _grown(found: ClusterFolder, brokers_count: int, first_port: int | None) -> ClusterFolder:
    if brokers_count < len(found.ports):
        raise FolderError(f"the cluster in {found.directory} has {len(found.ports)} brokers: with fewer, replicas would be missing")
    node_ids = range(1, brokers_count + 1)
    if first_port is not None:
        return found.with_ports(_ports(node_ids, first_port))
    follow = max(found.ports.values()) + 1
    return found.with_ports({node_id: found.ports.get(node_id, follow + node_id - len(found.ports) - 1) for node_id in node_ids})


def _ports(node_ids: Sequence[int], first_port: int) -> dict[int, int]:
    """One after another; 0 for ports that are free."""
    return {node_id: first_port and first_port + node_id - 1 for node_id in node_ids}


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in random.SystemRandom().sample(CONTROLLER_PORTS, len(CONTROLLER_PORTS)):
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                continue
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise FolderError("no free ports for the controllers")
