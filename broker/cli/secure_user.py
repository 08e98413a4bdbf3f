"""`barnabas secure add-user`: a user of a running broker, with a random password and rights, by Kafka's own APIs as the administrator.

Any broker with SCRAM-SHA-512 and an authorizer will do, Apache Kafka's too: DIR/client.properties says how to connect to it.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from broker.cli.client_files import MECHANISM, java_client
from broker.cli.client_security import ClientSecurity, read_command_config
from broker.cli.private_files import write_private
from broker.cli.wire_client import WireClient
from broker.security.authorizer.acl_codes import WILDCARD, AclOperation, AclPermissionType, PatternType, ResourceType
from config.endpoints import parse_host_and_port
from config.loading import read_properties
from protocol.errors import ErrorCode
from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from protocol.sasl import scram
from protocol.sasl.scram import ITERATIONS_MIN, ScramMechanism

if TYPE_CHECKING:
    import argparse

ADMINISTRATORS_FILE = "client.properties"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
"""Of a user: it is a file's name too."""
FILES_OF_OTHERS = (ADMINISTRATORS_FILE, "librdkafka.properties", "server.properties", "security.properties")
SINKS_LEDGER = "barnabas-sinks"
"""A sink's ledger unless it says otherwise: DEFAULT_LEDGER of barnabas/spark/sink/options.py, which cannot be imported here."""
LEDGER_OPERATIONS = (AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS)
PASSWORD_BYTES = 24
SALT_BYTES = 17
TIMEOUT_S = 10.0


class UserError(Exception):
    """The user was not made; `str()` is the line to print."""


def add_user(arguments: list[str]) -> int:
    """Make the user, and say so; returns the exit code. Raises ConfigError for a client.properties that cannot be used."""
    options = _parser().parse_args(arguments)
    directory = Path(options.directory).absolute()
    try:
        path = _add(directory, options)
    except (UserError, OSError) as e:
        print(f"barnabas secure add-user: {e}", file=sys.stderr)
        return 1
    print(f"user {options.name}: {path}, for Java clients and Kafka's tools, has the password")
    return 0


def acls(options: argparse.Namespace) -> list[AclCreation]:
    """The rights of the command line, for `options.name` from every host. READ and WRITE imply DESCRIBE."""
    wishes = [
        *((ResourceType.TOPIC, topic, AclOperation.READ) for topic in options.read),
        *((ResourceType.TOPIC, topic, AclOperation.WRITE) for topic in options.write),
        *((ResourceType.GROUP, group, AclOperation.READ) for group in options.group),
        *((ResourceType.TRANSACTIONAL_ID, _transactions_of(sink), AclOperation.WRITE) for sink in options.sink),
        *((ResourceType.TOPIC, SINKS_LEDGER, operation) for operation in LEDGER_OPERATIONS if options.sink),
    ]
    return [_acl(options.name, *wish) for wish in wishes]


def _transactions_of(sink: str) -> str:
    """The transactional ids of a sink, which begin with its id and a dot."""
    return sink if sink.endswith(WILDCARD) else f"{sink}.{WILDCARD}"


def _acl(user: str, resource: ResourceType, name: str, operation: AclOperation) -> AclCreation:
    is_prefix = name.endswith(WILDCARD) and name != WILDCARD
    return AclCreation(
        resource_type=resource,
        resource_name=name.removesuffix(WILDCARD) if is_prefix else name,
        resource_pattern_type=PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        principal=f"User:{user}",
        host=WILDCARD,
        operation=operation,
        permission_type=AclPermissionType.ALLOW,
    )


def _add(directory: Path, options: argparse.Namespace) -> Path:
    name, path = options.name, directory / f"{options.name}.properties"
    if not NAME.fullmatch(name) or path.name in FILES_OF_OTHERS:
        raise UserError(f"{name!r} cannot be a user's name here: letters, digits, '.', '_' and '-', and none of this directory's files")
    if path.exists():
        raise UserError(f"{path} is there already")
    admin = read_properties(directory / ADMINISTRATORS_FILE)
    config = read_command_config(directory / ADMINISTRATORS_FILE)
    trusted, password = _authority(admin), secrets.token_urlsafe(PASSWORD_BYTES)
    with _connected(config.bootstrap_servers.split(","), config.security) as client, _unless_it_fails(path):
        _refuse_known(client, name)
        # The password is on the disk before it counts.
        write_private(path, java_client(config.bootstrap_servers, trusted, name, password))
        _grant(client, acls(options))
        _set_password(client, name, password)
    return path


def _authority(admin: Mapping[str, str]) -> str:
    """In PEM; "" if the administrator trusts the system's. Raises UserError for stores of other types, which a file cannot hold."""
    if text := admin.get("ssl.truststore.certificates"):
        return text
    location = admin.get("ssl.truststore.location")
    if location is None:
        return ""
    if admin.get("ssl.truststore.type") != "PEM":
        raise UserError(f"{ADMINISTRATORS_FILE}: ssl.truststore.type has to be PEM")
    return Path(location).read_text()


@contextlib.contextmanager
def _unless_it_fails(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _connected(servers: Sequence[str], security: ClientSecurity | None) -> WireClient:
    """To the first that answers. Raises UserError."""
    why = []
    for server in servers:
        host, port = parse_host_and_port("bootstrap.servers", server.strip())
        try:
            return WireClient(host, port, timeout_s=TIMEOUT_S, security=security)
        except OSError as e:
            why.append(f"{server}: {e.strerror or e}")
    raise UserError(f"no broker answers: {'; '.join(why)}")


def _refuse_known(client: WireClient, name: str) -> None:
    answer = client.request(DescribeUserScramCredentialsRequest(users=[UserName(name=name)]))
    _check(answer.error_code, answer.error_message)
    (result,) = answer.results
    if result.error_code != ErrorCode.RESOURCE_NOT_FOUND:
        _check(result.error_code, result.error_message)
        raise UserError(f"there is a user {name} already; kafka-configs --alter --entity-type users changes its password")


def _grant(client: WireClient, creations: list[AclCreation]) -> None:
    if creations:
        for result in client.request(CreateAclsRequest(creations=creations)).results:
            _check(result.error_code, result.error_message)


def _set_password(client: WireClient, name: str, password: str) -> None:
    mechanism = scram.find_mechanism(MECHANISM)
    assert mechanism is ScramMechanism.SCRAM_SHA_512, "it is Kafka's"
    salt = scram.salt_text(os.urandom(SALT_BYTES))
    credential = ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism.value,
        iterations=ITERATIONS_MIN,
        salt=salt,
        salted_password=scram.salted_password(mechanism, password, salt, ITERATIONS_MIN),
    )
    for result in client.request(AlterUserScramCredentialsRequest(upsertions=[credential])).results:
        _check(result.error_code, result.error_message)


def _check(code: int, message: str | None) -> None:
    if code:
        name = ErrorCode(code).name
        raise UserError(f"the broker refuses, {name}{f': {message}' if message else ''}")


def _parser() -> argparse.ArgumentParser:
    from broker.cli.one_line_parser import OneLineParser

    parser = OneLineParser(prog="barnabas secure add-user", description="Make a user of a running secured broker.")
    add = parser.add_argument
    add("name", metavar="NAME")
    add("--read", action="append", default=[], metavar="TOPIC", help="a topic that it may read; TOPIC* for all that begin so")
    add("--write", action="append", default=[], metavar="TOPIC", help="a topic that it may write; TOPIC* for all that begin so")
    add("--group", action="append", default=[], metavar="GROUP", help="a group that it may join; GROUP* for all that begin so")
    add("--sink", action="append", default=[], metavar="ID", help='a sink of Spark\'s format("barnabas"), by its id; write-* for df.write')
    add("--directory", default=".", metavar="DIR", help="of secure init: its client.properties are the administrator's (default: .)")
    return parser
