"""Let a controller that follows the metadata quorum vote in it (KIP-853). It has to run, and to have caught up.

The directory's id is that of the observer with this node id, unless --directory-id gives another one.
"""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.cluster.quorum_facts import quorum_facts
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError, RefusedError, check
from barnabas.cli.output import Output, confirm
from barnabas.cli.settings import resolve_for_change
from config.endpoints import parse_host_and_port
from config.properties import ConfigError
from protocol.errors import DecodeError
from protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.uuids import uuid_from_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("node", type=int, metavar="NODE", help="the controller's node.id")
    add(
        "-l", "--listener", action="append", required=True, metavar="NAME://HOST:PORT",
        help="a controller listener as it is advertised: CONTROLLER://host-4:9093",
    )  # fmt: skip
    add("--directory-id", metavar="ID", help="directory.id in meta.properties of its metadata log directory")
    arguments.add_change(parser, asks=True)
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    listeners = [_listener(text) for text in options.listener]
    with Connection(settings) as connection:
        replicas = [each for each in quorum_facts(connection)["replicas"] if each["id"] == options.node]
        if any(each["role"] != "observer" for each in replicas):
            raise RefusedError(f"node {options.node} votes already; barnabas cluster quorum has all")
        observed = [each["directory_id"] for each in replicas if each["directory_id"]]
        directory_id = options.directory_id or (observed[0] if len(observed) == 1 else None)
        if directory_id is None:
            raise RefusedError(f"node {options.node} does not follow the quorum with a directory of its own: start it, or --directory-id")
        where = ", ".join(options.listener)
        if not confirm([f"let node {options.node} vote, directory {directory_id}, at {where}"], dry_run=options.dry_run, yes=options.yes):
            return DONE
        wire = connection.wire()
        answer = wire.request(
            AddRaftVoterRequest(
                cluster_id=wire.request(DescribeClusterRequest()).cluster_id,
                timeout_ms=connection.timeout_ms,
                voter_id=options.node,
                voter_directory_id=_uuid(directory_id),
                listeners=listeners,
            )
        )
        check(answer.error_code, answer.error_message)
    Output("table").line(f"node {options.node} votes")
    return DONE


def _uuid(text: str) -> bytes:
    try:
        return uuid_from_text(text)
    except (ValueError, DecodeError) as e:
        raise NotUnderstoodError(f"--directory-id {text}: it is 22 characters of base64") from e


def _listener(text: str) -> Listener:
    name, separator, address = text.partition("://")
    try:
        host, port = parse_host_and_port("--listener", address)
    except ConfigError as e:
        raise NotUnderstoodError(str(e)) from e
    if not separator or not name:
        raise NotUnderstoodError(f"--listener {text}: it is NAME://HOST:PORT")
    return Listener(name=name, host=host, port=port)
