"""What the user commands share: mechanisms, passwords, and changes of credentials."""

from __future__ import annotations

import argparse
import getpass
import secrets
import sys

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from barnabas.cli.connection import Connection
from barnabas.cli.errors import NotUnderstoodError, check
from protocol.errors import ErrorCode
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName

MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
DEFAULT_MECHANISM = "SCRAM-SHA-512"
ITERATIONS = 4_096
"""Kafka's fewest (ScramMechanism.minIterations)."""
PASSWORD_BYTES = 24


def add_password(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m", "--mechanism", type=str.upper, choices=[*MECHANISMS], default=DEFAULT_MECHANISM, help=f"({DEFAULT_MECHANISM})"
    )
    parser.add_argument("--iterations", type=int, default=ITERATIONS, metavar="N", help=f"({ITERATIONS})")
    parser.add_argument("--generate", action="store_true", help="a random password, which is printed (it is asked for, or read from stdin)")


def credentials_of(connection: Connection, name: str | None = None) -> dict[str, list[ScramCredentialInfo]]:
    """The credentials of a user, or of all, by name; no passwords. Raises CommandError.

    By the wire: confluent-kafka 2.16 ends the process where a broker refuses to tell all users (CLUSTER_AUTHORIZATION_FAILED)."""
    users = [] if name is None else [UserName(name=name)]  # Apache Kafka 4.3.1 refuses null by no answer at all
    answer = connection.wire().request(DescribeUserScramCredentialsRequest(users=users))
    check(answer.error_code, answer.error_message)
    found = {}
    for result in answer.results:
        if result.error_code != ErrorCode.RESOURCE_NOT_FOUND:
            check(result.error_code, result.error_message)
            infos = [ScramCredentialInfo(ScramMechanism(info.mechanism), info.iterations) for info in result.credential_infos]
            found[result.user] = infos
    return found


def set_password(connection: Connection, options: argparse.Namespace) -> None:
    """Take a password and set it; prints a generated one. Raises CommandError."""
    password = secrets.token_urlsafe(PASSWORD_BYTES) if options.generate else read_password(options.name)
    info = ScramCredentialInfo(MECHANISMS[options.mechanism], options.iterations)
    change = UserScramCredentialUpsertion(options.name, info, password.encode())
    connection.results(connection.admin.alter_user_scram_credentials([change], request_timeout=connection.timeout_s))
    if options.generate:
        print(password)


def read_password(name: str) -> str:
    """From the terminal, twice and unseen, or the first line of standard input. Raises NotUnderstoodError."""
    if sys.stdin.isatty():
        password = getpass.getpass(f"password of {name}: ")
        if getpass.getpass("again: ") != password:
            raise NotUnderstoodError("the two are not the same")
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise NotUnderstoodError("a password cannot be empty: give it on standard input, or --generate one")
    return password
