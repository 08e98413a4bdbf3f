"""Set the password of a user that is there, for one mechanism."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, RefusedError
from barnabas.cli.settings import resolve
from barnabas.cli.user.credentials import add_password, credentials_of, set_password


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    add_password(parser)
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve(options)
    settings.check_writable()
    with Connection(settings) as connection:
        if not credentials_of(connection, options.name):
            raise RefusedError(f"there is no user {options.name}; barnabas user create makes one")
        set_password(connection, options)
    return DONE
