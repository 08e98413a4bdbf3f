"""Delete users: their SCRAM credentials. Their ACLs stay."""

from __future__ import annotations

import argparse

from confluent_kafka.admin import UserScramCredentialDeletion

from barnabas.cli import arguments
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, RefusedError
from barnabas.cli.output import Output, confirm
from barnabas.cli.report import Outcome, report
from barnabas.cli.settings import resolve_for_change
from barnabas.cli.user.credentials import MECHANISMS, credentials_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("-m", "--mechanism", type=str.upper, choices=[*MECHANISMS], help="only this credential (all)")
    arguments.add_change(parser, asks=True)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    with Connection(settings) as connection:
        infos = credentials_of(connection, options.name).get(options.name, [])
        chosen = [info.mechanism for info in infos if options.mechanism is None or info.mechanism == MECHANISMS[options.mechanism]]
        if not chosen:
            raise RefusedError(f"there is no such credential of {options.name}; barnabas user list has those that are there")
        names = [mechanism.name.replace("_", "-") for mechanism in chosen]
        plan = [f"delete the {name} credential of {options.name}" for name in names]
        if not confirm(plan, dry_run=options.dry_run, yes=options.yes):
            return DONE
        outcomes = []
        for mechanism, name in zip(chosen, names, strict=True):  # a request may have one change of a user
            changes = [UserScramCredentialDeletion(options.name, mechanism)]
            (answer,) = connection.attempts(
                connection.admin.alter_user_scram_credentials(changes, request_timeout=connection.timeout_s)  # type: ignore[arg-type]
            ).values()
            outcomes.append(Outcome.of(f"{options.name} {name}", answer, "deleted"))
    report(Output(options.output), "user", outcomes)
    return DONE
