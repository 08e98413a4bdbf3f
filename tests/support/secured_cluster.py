"""Brokers that `barnabas secure init` has made, and users of them, for programs that somebody else wrote.

    with SecuredCluster(tmp_path) as cluster:
        endpoint = cluster.add_user("streams", "READ topic orders", "CREATE topic program-*", "READ group program-*")

The program under test connects by SASL_SSL (TLS, SCRAM-SHA-512, host names checked) and has only the rights that it is given. The test
itself prepares and looks by a listener PLAINTEXT, on which everyone is a super user. Apache Kafka runs with the same files.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from broker.security.authorizer.acl_codes import AclOperation, AclPermissionType, PatternType, ResourceType
from config.loading import read_properties
from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.metadata import MetadataRequest
from tests.support.broker import OnKafkasProperties
from tests.support.kafka import KafkaServer
from tests.support.ports import free_ports, neighbours
from tests.support.process import COMMON_SETTINGS, ServerProcess, checkout
from tests.support.wire import WireClient

KINDS: Mapping[str, type[OnKafkasProperties] | type[KafkaServer]] = {"barnabas": OnKafkasProperties, "kafka": KafkaServer}
COMMAND_TIMEOUT_S = 60.0
ADMINISTRATOR = "client"  # as secure init calls the administrator's file
# `secure init` decides on these by the number of nodes.
REPLICATION = {"offsets.topic.replication.factor", "transaction.state.log.replication.factor", "transaction.state.log.min.isr"}
SCRAM_ROUNDS = 4_096


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How the program under test connects: `java` are a Java client's properties, with bootstrap.servers. `server` is for the test."""

    server: ServerProcess
    java: Mapping[str, str]
    authority: Path | None = None
    """The file of the certificate that clients trust; None for PLAINTEXT."""

    @property
    def bootstrap(self) -> str:
        return self.java["bootstrap.servers"]

    @property
    def login(self) -> tuple[str, str]:
        """User and password."""
        words = self.java["sasl.jaas.config"].split('"')
        return words[1], words[3]

    def security(self, prefix: str = "") -> dict[str, str]:
        """Java's properties without bootstrap.servers, each name after `prefix`."""
        return {f"{prefix}{name}": value for name, value in self.java.items() if name != "bootstrap.servers"}

    def librdkafka(self) -> dict[str, str]:
        if self.authority is None:
            return {"bootstrap.servers": self.bootstrap}
        user, password = self.login
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self.java["security.protocol"],
            "ssl.ca.location": str(self.authority),
            "sasl.mechanism": self.java["sasl.mechanism"],
            "sasl.username": user,
            "sasl.password": password,
        }

    def kafka_python(self) -> dict[str, Any]:
        if self.authority is None:
            return {"bootstrap_servers": self.bootstrap}
        return {**self._of_python(), "ssl_cafile": str(self.authority)}

    def aiokafka(self) -> dict[str, Any]:
        if self.authority is None:
            return {"bootstrap_servers": self.bootstrap}
        return {**self._of_python(), "ssl_context": ssl.create_default_context(cafile=self.authority)}

    def _of_python(self) -> dict[str, Any]:
        """What kafka-python and aiokafka call by the same names."""
        user, password = self.login
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": self.java["security.protocol"],
            "sasl_mechanism": self.java["sasl.mechanism"],
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }

    def words(self) -> list[str]:
        """For the programs of other languages: the brokers, and as JSON how they log in."""
        if self.authority is None:
            return [self.bootstrap]
        user, password = self.login
        mechanism = self.java["sasl.mechanism"]
        return [
            self.bootstrap,
            json.dumps({"ca": self.authority.read_text(), "mechanism": mechanism, "user": user, "password": password}),
        ]


def plain(server: ServerProcess) -> Endpoint:
    """By the server's listener without security."""
    return Endpoint(server, {"bootstrap.servers": server.bootstrap})


class SecuredCluster:
    """Owns the nodes. `with` starts them and kills what runs at the end."""

    def __init__(
        self,
        directory: Path,
        node_count: int = 1,
        *,
        kind: str = "barnabas",
        settings: Mapping[str, str] | None = None,
        listeners: Sequence[str] = (),
    ) -> None:
        """`listeners` are the security protocols of further ones, which bear their names."""
        self.directory = directory / "secured"
        _run("init", str(self.directory), "--nodes", str(node_count), "--port", str(neighbours(2 * node_count)))
        self.authority = self.directory / "ca.pem"
        changes = {name: value for name, value in COMMON_SETTINGS.items() if name not in REPLICATION} | dict(settings or {})
        folders = [self.directory] if node_count == 1 else [self.directory / f"node-{number + 1}" for number in range(node_count)]
        self.node_keys = folders[0] / "keys" / "node.pem"
        """Key and certificate of a user that is a super user too: barnabas-node."""
        self._addresses = [dict(zip(listeners, _addresses(len(listeners)), strict=True)) for _ in folders]
        self.nodes = [_node(kind, folder, changes, more) for folder, more in zip(folders, self._addresses, strict=True)]

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def start(self) -> Self:
        """Returns when each node knows all."""
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_ready()
        return self

    def close(self) -> None:
        for node in self.nodes:
            node.kill()

    @property
    def server(self) -> ServerProcess:
        """The first node."""
        return self.nodes[0]

    def addresses(self, listener: str) -> str:
        """Of all nodes, by one of the further listeners."""
        return ",".join(of_node[listener] for of_node in self._addresses)

    def administrator(self) -> Endpoint:
        """A super user, for suites that do everything."""
        return self._endpoint(ADMINISTRATOR)

    def add_user(self, name: str, *rights: str, words: Sequence[str] = ()) -> Endpoint:
        """A new user with these rights, as "OPERATION resource-type name"; "name*" is for all names that begin so. `words` are options of
        `secure add-user`."""
        _run("add-user", name, "--directory", str(self.directory), *words)
        self.allow(name, *rights)
        return self._endpoint(name)

    def add_credential(self, user: str, password: str, mechanism: ScramMechanism) -> None:
        """One that `secure add-user` does not make."""
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        credential = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, SCRAM_ROUNDS), password.encode())
        for future in admin.alter_user_scram_credentials([credential]).values():
            future.result(COMMAND_TIMEOUT_S)

    def allow(self, user: str, *rights: str) -> None:
        if not rights:
            return
        with WireClient(self.server.host, self.server.port) as client:
            results = client.request(CreateAclsRequest(creations=[_creation(user, right) for right in rights]), 3).results
        assert {result.error_code for result in results} == {ErrorCode.NONE}, results

    def _endpoint(self, name: str) -> Endpoint:
        return Endpoint(self.server, read_properties(self.directory / f"{name}.properties"), self.authority)


def _addresses(count: int) -> list[str]:
    return [f"localhost:{port}" for port in free_ports(count)]


def _node(kind: str, folder: Path, settings: Mapping[str, str], listeners: Mapping[str, str]) -> ServerProcess:
    """A node with listeners more, which knows all nodes of its cluster when it serves."""
    node = KINDS[kind](folder)
    (node.port,) = free_ports(1)
    properties = folder / "server.properties"
    made = read_properties(properties)
    more = {"PLAINTEXT": node.bootstrap, **listeners}
    places = ",".join(f"{protocol}://{address}" for protocol, address in more.items())
    protocols = "".join(f",{protocol}:{protocol}" for protocol in more)
    lines = [
        f"listeners={made['listeners']},{places}",
        f"advertised.listeners={made['advertised.listeners']},{places}",
        f"listener.security.protocol.map={made['listener.security.protocol.map']}{protocols}",
        f"super.users={made['super.users']};User:ANONYMOUS",
        *(f"{name}={value}" for name, value in settings.items()),
    ]
    with properties.open("a") as file:  # of two lines with one name the last counts
        file.write("\n".join(("", *lines, "")))
    node_count = len(made["controller.quorum.bootstrap.servers"].split(","))
    node.serves = lambda: _knows(node, node_count)  # type: ignore[method-assign]
    return node


def _knows(node: ServerProcess, node_count: int) -> bool:
    try:
        with WireClient(node.host, node.port) as client:
            return len(client.request(MetadataRequest(topics=[]), 12).brokers) == node_count
    except (OSError, EOFError):
        return False


def _creation(user: str, right: str) -> AclCreation:
    operation, resource_type, name = right.split()
    is_prefix = name.endswith("*") and name != "*"
    return AclCreation(
        resource_type=ResourceType[resource_type.upper()],
        resource_name=name.removesuffix("*") if is_prefix else name,
        resource_pattern_type=PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        principal=f"User:{user}",
        host="*",
        operation=AclOperation[operation],
        permission_type=AclPermissionType.ALLOW,
    )


def _run(*words: str) -> None:
    command = [sys.executable, "-m", "broker.cli.main", "secure", *words]
    done = subprocess.run(command, cwd=checkout(), capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
