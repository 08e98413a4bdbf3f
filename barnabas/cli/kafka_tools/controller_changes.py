"""add-controller and remove-controller of kafka-metadata-quorum (KIP-853), with Kafka's output.

A controller is added by its own configuration, on its own machine: that has its number and its listeners, and the directory's id is in
meta.properties of its metadata log directory. Nothing asks before it is done, as in Kafka.

Source: MetadataQuorumCommand.handleAddController, handleRemoveController.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from barnabas.cli.connection import Connection
from barnabas.cli.errors import CommandError, check
from config.endpoints import Endpoint, parse_endpoints
from config.loading import read_properties
from protocol.errors import DecodeError
from protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from protocol.uuids import uuid_from_text, uuid_to_text
from storage.files import META_PROPERTIES

DEFAULT_HOST = "localhost"
IS_IT_VALID = "Is this a valid controller configuration file?"


class Controller(NamedTuple):
    """What is told of a new voter. `endpoints` are of its controller listeners, as they are advertised."""

    node_id: int
    directory_id: bytes
    endpoints: tuple[Endpoint, ...]


def add_controller_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="print what would be done")


def remove_controller_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--controller-id", "-i", type=int, required=True, metavar="N")
    add("--controller-directory-id", "-d", required=True, metavar="ID", help="DirectoryId of describe --replication")
    add("--dry-run", action="store_true", help="print what would be done")


def read_controller(path: str) -> Controller:
    """By a controller's server.properties. Raises CommandError, ConfigError."""
    if not path:
        raise CommandError("You must supply the configuration file of the controller you are adding when using add-controller.")
    texts = read_properties(Path(path))
    return Controller(_node_id(texts), _directory_id(_metadata_directory(texts)), _endpoints(texts))


def add_controller(connection: Connection, controller: Controller, *, dry_run: bool) -> None:
    """Raises CommandError."""
    if not dry_run:
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=connection.timeout_ms,
            voter_id=controller.node_id,
            voter_directory_id=controller.directory_id,
            listeners=[Listener(name=each.listener_name, host=each.host, port=each.port) for each in controller.endpoints],
        )
        answer = connection.wire().request(request)
        check(answer.error_code, answer.error_message)
    what = f"controller {controller.node_id} with directory id {uuid_to_text(controller.directory_id)}"
    print(f"{'DRY RUN of adding' if dry_run else 'Added'} {what} and endpoints: {', '.join(map(str, controller.endpoints))}")


def remove_controller(connection: Connection, node_id: int, directory_id_text: str, *, dry_run: bool) -> None:
    """Raises CommandError."""
    if node_id < 0:
        raise CommandError(f"Invalid negative --controller-id: {node_id}")
    try:
        directory_id = uuid_from_text(directory_id_text)
    except (ValueError, DecodeError) as e:
        raise CommandError(f"Failed to parse --controller-directory-id: {e}") from e
    if not dry_run:
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=directory_id)
        answer = connection.wire().request(request)
        check(answer.error_code, answer.error_message)
    # The second blank before KRaft is Kafka's.
    print(f"{'DRY RUN of removing' if dry_run else 'Removed'}  KRaft controller {node_id} with directory id {uuid_to_text(directory_id)}")


def _node_id(texts: Mapping[str, str]) -> int:
    if "node.id" not in texts:
        raise CommandError(f"node.id not found in configuration file. {IS_IT_VALID}")
    text = texts["node.id"].strip()
    if not text.removeprefix("-").isdecimal():
        raise CommandError(f'For input string: "{text}": node.id is a number. {IS_IT_VALID}')
    if text.startswith("-"):
        raise CommandError(f"node.id was negative in configuration file. {IS_IT_VALID}")
    if "controller" not in texts.get("process.roles", ""):
        raise CommandError(f"process.roles did not contain 'controller' in configuration file. {IS_IT_VALID}")
    return int(text)


def _metadata_directory(texts: Mapping[str, str]) -> Path:
    if "metadata.log.dir" in texts:
        return Path(texts["metadata.log.dir"])
    if first := texts.get("log.dirs", "").strip().partition(",")[0]:
        return Path(first)
    raise CommandError(f"Neither metadata.log.dir nor log.dirs were found. {IS_IT_VALID}")


def _directory_id(directory: Path) -> bytes:
    path = directory / META_PROPERTIES
    if not path.exists():
        raise CommandError(f"Unable to read meta.properties from {directory}")
    text = read_properties(path).get("directory.id")
    if text is None:
        raise CommandError(f"No directory id found in {directory}")
    try:
        return uuid_from_text(text)
    except (ValueError, DecodeError) as e:
        raise CommandError(f"{path}: directory.id: {e}") from e


def _endpoints(texts: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """advertised.listeners win over listeners. Their protocols do not matter: a voter's endpoint has none."""
    known: dict[str, Endpoint] = {}
    for key in ("listeners", "advertised.listeners"):
        each = tuple(part.strip() for part in texts.get(key, "").split(",") if part.strip())
        plain = {part.partition("://")[0].upper(): "PLAINTEXT" for part in each}
        known |= {endpoint.listener_name: endpoint for endpoint in parse_endpoints(key, each, plain, with_distinct_ports=False)}
    if "controller.listener.names" not in texts:
        raise CommandError(f"controller.listener.names was not found. {IS_IT_VALID}")
    names = [name.strip().upper() for name in texts["controller.listener.names"].split(",")]
    if missing := [name for name in names if name not in known]:
        raise CommandError(f"Cannot find information about controller listener name: {missing[0]}")
    return tuple(known[name]._replace(host=known[name].host or DEFAULT_HOST) for name in dict.fromkeys(names))
