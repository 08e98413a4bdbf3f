"""What the user commands share: mechanisms, passwords, and changes of credentials."""

from __future__ import annotations

import argparse
import getpass
import secrets
import sys
from typing import Any

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from barnabas.cli.connection import Connection
from barnabas.cli.errors import CommandError, NotUnderstoodError

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


def credentials_of(connection: Connection, name: str | None = None) -> dict[str, list[Any]]:
    """The credentials of a user, or of all, by name; no passwords. Raises CommandError."""
    asked = connection.admin.describe_user_scram_credentials(None if name is None else [name], request_timeout=connection.timeout_s)
    if name is None:
        found = connection.result(asked)  # type: ignore[arg-type]
        return {user: list(each.scram_credential_infos) for user, each in found.items()}
    (answer,) = connection.attempts(asked).values()  # type: ignore[arg-type]
    if isinstance(answer, CommandError):
        if str(answer).startswith("RESOURCE_NOT_FOUND"):
            return {}
        raise answer
    return {name: list(answer.scram_credential_infos)}


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
