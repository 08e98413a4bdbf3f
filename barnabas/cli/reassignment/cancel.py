"""End moves in progress: `topic reassign --cancel` and `cluster reassign cancel`."""

from __future__ import annotations

import argparse

from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE
from barnabas.cli.output import Output, confirm
from barnabas.cli.reassignment.moves import in_progress, start
from barnabas.cli.report import report, report_nothing


def cancel(connection: Connection, options: argparse.Namespace, output: Output) -> int:
    """Of `options.topics`, or of all. Returns the exit code. Raises CommandError."""
    moving = {each: move for each, move in in_progress(connection).items() if not options.topics or each[0] in options.topics}
    if not moving:
        report_nothing(output, "nothing is being moved")
        return DONE
    plan = [
        f"cancel {name}-{index}: it stays on {','.join(str(broker) for broker in move.replicas if broker not in move.adding)}"
        for (name, index), move in moving.items()
    ]
    if confirm(plan, dry_run=options.dry_run, yes=options.yes):
        report(output, "partition", start(connection, dict.fromkeys(moving), "cancelled"))
    return DONE
