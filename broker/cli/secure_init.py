"""`barnabas secure init`: everything that a secured broker, or a cluster, needs before its first start.

The files of secured_folder.py, and DIR/server.properties with keys/ and data/; of a cluster node-1/, node-2/, … have those three.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from broker.cli.authority import LOCAL_NAMES
from broker.cli.client_files import escape
from broker.cli.formatter import FormatOptions, format_node
from broker.cli.private_files import make_private_directory, write_private
from broker.cli.secured_folder import (
    ADMINISTRATOR,
    AUTHORITY_FILE,
    is_host,
    make_authority,
    make_client_files,
    make_keys,
    new_passwords,
    security_settings,
)
from broker.server.formatting import FormatError, new_id
from config.endpoints import PORT_MAX
from config.loading import load_server_config
from protocol.uuids import uuid_to_text
from storage.errors import StorageError

if TYPE_CHECKING:
    import argparse

SERVER_PROPERTIES = "server.properties"
NODES_MAX = 9
REPLICAS_MAX = 3
DEFAULT_PORT = 9092


class InitError(Exception):
    """Nothing can be made; `str()` is the line to print."""


class Place(NamedTuple):
    """Where one node is: `folder` has its files; clients and nodes find it at `host`."""

    node_id: int
    folder: Path
    host: str
    port: int
    controller_port: int
    directory_id: str
    """Of its metadata log, by which it is one of the first voters."""

    @property
    def address(self) -> str:
        return f"{_bracketed(self.host)}:{self.port}"

    @property
    def controller_address(self) -> str:
        return f"{_bracketed(self.host)}:{self.controller_port}"


def init(arguments: list[str]) -> int:
    """Make the files, and say what was made; returns the exit code."""
    options = _parser().parse_args(arguments)
    directory = Path(options.directory).absolute()
    try:
        places = _places(directory, options.host, options.nodes, options.port)
        _begin(directory)
        _make(directory, places, options.host)
    except (InitError, FormatError, StorageError, OSError) as e:
        print(f"barnabas secure init: {e}", file=sys.stderr)
        return 1
    _tell(directory, places)
    return 0


def _places(directory: Path, hosts: Sequence[str], count: int, port: int) -> list[Place]:
    """With as many hosts as nodes each node has its own; else all are on the first, with ports of their own. Raises InitError."""
    if not 1 <= count <= NODES_MAX:
        raise InitError(f"--nodes {count}: a cluster has 1 to {NODES_MAX} nodes")
    for host in hosts:
        if not is_host(host):
            raise InitError(f"--host {host} is neither a host's name nor an address")
    has_own_hosts = len(hosts) == count > 1
    step, last = (0, 1) if has_own_hosts else (1, 2 * count - 1)
    if not 1 <= port <= PORT_MAX - last:
        raise InitError(f"--port {port} is not in 1..{PORT_MAX - last}")
    return [
        Place(
            node_id=number + 1,
            folder=directory / f"node-{number + 1}" if count > 1 else directory,
            host=hosts[number] if has_own_hosts else (hosts[0] if hosts else "localhost"),
            port=port + number * step,
            controller_port=port + (1 if has_own_hosts else count + number),
            directory_id=uuid_to_text(new_id(os.urandom)),
        )
        for number in range(count)
    ]


def _begin(directory: Path) -> None:
    """Raises InitError if there is something in the directory."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise InitError(f"{directory} has something in it; name an empty or a new directory")
    if any(letter in str(directory) for letter in ',\n"'):
        raise InitError(f"{directory}: no directory's name may have a comma, a quote or a line's end (log.dirs is a list)")
    make_private_directory(directory)


def _make(directory: Path, places: Sequence[Place], hosts: Sequence[str]) -> None:
    now_ms = int(time.time() * 1000)
    authority, passwords = make_authority(directory, now_ms), new_passwords()
    cluster_id = uuid_to_text(new_id(os.urandom))
    voters = ",".join(f"{place.node_id}@{place.controller_address}:{place.directory_id}" for place in places)
    for place in places:
        make_private_directory(place.folder)
        make_keys(place.folder, authority, place.host, (*LOCAL_NAMES, place.host, *hosts))
        settings = _server_properties(place, places, directory / AUTHORITY_FILE, passwords.nodes, is_local=not hosts)
        write_private(place.folder / SERVER_PROPERTIES, settings)
        config = load_server_config(place.folder / SERVER_PROPERTIES, {}, ())
        asked = FormatOptions(cluster_id, scram_users=passwords.scram_users(), initial_controllers=voters)
        format_node(config, asked, random_bytes=os.urandom, now_ms=now_ms, say=_say_nothing)
    make_client_files(directory, _servers(places), passwords.administrator)


def _server_properties(place: Place, places: Sequence[Place], trusted: Path, password: str, *, is_local: bool) -> str:
    replicas = min(len(places), REPLICAS_MAX)
    bound = place.host if is_local else ""
    return f"""\
# A secured node: TLS and SCRAM for clients and brokers, TLS with client certificates for controllers, ACLs. This file has a password.
process.roles=broker,controller
node.id={place.node_id}
log.dirs={escape(str(place.folder / "data"))}

listeners=SASL_SSL://{bound}:{place.port},CONTROLLER://{bound}:{place.controller_port}
advertised.listeners=SASL_SSL://{place.address},CONTROLLER://{place.controller_address}
listener.security.protocol.map=SASL_SSL:SASL_SSL,CONTROLLER:SSL
inter.broker.listener.name=SASL_SSL
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={",".join(each.controller_address for each in places)}

{security_settings(place.folder, trusted, password)}
offsets.topic.replication.factor={replicas}
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr={max(replicas - 1, 1)}
default.replication.factor={replicas}
min.insync.replicas={max(replicas - 1, 1)}
"""


def _tell(directory: Path, places: Sequence[Place]) -> None:
    """Ten lines."""
    servers, count = _servers(places), len(places)
    starts = [f"barnabas serve --config {place.folder / 'server.properties'}" for place in places]
    print(f"{directory} has a secured {'broker' if count == 1 else f'cluster of {count} nodes'}: TLS, SCRAM, ACLs")
    print("  ca.pem, ca.key           the authority that clients trust, and its private key: keep that one elsewhere")
    print(f"  client.properties        the administrator, user {ADMINISTRATOR}: for kafka-topics.sh --command-config and Java clients")
    print("  librdkafka.properties    the same for librdkafka (kcat -F); example.py: a producer and a consumer in Python")
    print(f"  {'server.properties' if count == 1 else 'node-N/server.properties':<24} the settings; beside it keys/ and data/")
    print(f"start:     {starts[0]}{'' if count == 1 else f'   (each of node-1 to node-{count})'}")
    print(f"connect:   {servers}")
    print(f"state:     barnabas cluster status --command-config {directory / 'client.properties'}")
    print(f"add users: barnabas secure add-user NAME --read TOPIC --write TOPIC --group GROUP --directory {directory}")
    print("Files with keys or passwords are readable by you alone. docs/security.md says what is protected against what.")


def _servers(places: Sequence[Place]) -> str:
    return ",".join(place.address for place in places)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _say_nothing(text: str) -> None:
    """What `format` says has no place among the ten lines."""


def _parser() -> argparse.ArgumentParser:
    from broker.cli.one_line_parser import OneLineParser

    parser = OneLineParser(prog="barnabas secure init", description="Make a secured broker, or cluster, in a new directory.")
    add = parser.add_argument
    add("directory", metavar="DIR", help="a new or an empty directory; the broker's files name it by its full path")
    add(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name or address by which clients reach it; the first is advertised, and it listens on every address then (default: "
        "localhost, on this machine only). As many as --nodes: each node's own",
    )
    add("--nodes", type=int, default=1, metavar="N", help="a cluster of N nodes, all of them brokers and controllers (default: 1)")
    add("--port", type=int, default=DEFAULT_PORT, metavar="PORT", help="the first node's port; controllers have the next (default: 9092)")
    return parser
