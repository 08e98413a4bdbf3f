"""Delete groups with their committed offsets. They must have no members."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, CommandError
from barnabas.cli.group.facts import get_groups, refuse_members
from barnabas.cli.group.offsets import committed
from barnabas.cli.output import Output, confirm
from barnabas.cli.report import Outcome, report
from barnabas.cli.settings import resolve_for_change


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("groups", nargs="+", metavar="GROUP")
    arguments.add_change(parser, asks=True)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    with Connection(settings) as connection:
        groups = get_groups(connection, options.groups)
        for name, group in groups.items():
            refuse_members(name, group, "it is deleted")
        counts = {name: "?" if isinstance(own, CommandError) else len(own) for name, own in committed(connection, groups).items()}
        plan = [f"delete group {name}: {count} committed offsets" for name, count in counts.items()]
        if not confirm(plan, dry_run=options.dry_run, yes=options.yes):
            return DONE
        answers = connection.attempts(connection.admin.delete_consumer_groups(list(groups), request_timeout=connection.timeout_s))
    report(Output(options.output), "group", [Outcome.of(name, answer, "deleted") for name, answer in answers.items()])
    return DONE
