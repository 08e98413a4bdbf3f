"""List users with SCRAM credentials, and their mechanisms."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE
from barnabas.cli.output import Column, Output
from barnabas.cli.settings import resolve
from barnabas.cli.user.credentials import credentials_of

COLUMNS = (Column("user", "USER"), Column("mechanism", "MECHANISM"), Column("iterations", "ITERATIONS", is_number=True))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    with Connection(resolve(options)) as connection:
        users = credentials_of(connection)
    rows = [
        {"user": user, "mechanism": info.mechanism.name.replace("_", "-"), "iterations": info.iterations}
        for user, infos in sorted(users.items())
        for info in sorted(infos, key=lambda info: str(info.mechanism.name))
    ]
    Output(options.output).rows(rows, COLUMNS)
    return DONE
