"""What `cluster cordon` and `uncordon` share: the broker's list of cordoned directories."""

from __future__ import annotations

import argparse

from barnabas.cli.cluster_facts import log_dirs
from barnabas.cli.config.resources import DELETE, SET, Change, alter
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, RefusedError
from barnabas.cli.output import Output
from barnabas.cli.settings import Settings
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest

CORDONED = "cordoned.log.dirs"
ALL = "*"
TELLS = 5
"""The version of DescribeLogDirs that tells what is cordoned."""


def add_directories(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("broker", type=int, metavar="BROKER")
    parser.add_argument("directories", nargs="*", metavar="DIR", help="as `cluster log-dirs` has them (all)")


def change(settings: Settings, options: argparse.Namespace, *, is_cordoned: bool) -> int:
    """Returns the exit code. Raises CommandError."""
    with Connection(settings) as connection:
        if not connection.wire(options.broker).serves(DescribeLogDirsRequest, TELLS):
            raise RefusedError("this broker cannot cordon log directories (KIP-1066: Apache Kafka 4.3)")
        told = {each.log_dir: each.is_cordoned for each in log_dirs(connection, options.broker)}
        chosen = options.directories or [*told]
        if unknown := [name for name in chosen if name not in told]:
            raise RefusedError(f"broker {options.broker} has no log directory {', '.join(unknown)}; barnabas cluster log-dirs has them")
        before = {name for name, was in told.items() if was}
        after = before | {*chosen} if is_cordoned else before - {*chosen}
        value = ALL if len(after) == len(told) else ",".join(sorted(after))
        wanted = Change(CORDONED, SET, value) if after else Change(CORDONED, DELETE)
        alter(connection, "broker", str(options.broker), [wanted], dry_run=options.dry_run)
    what = "can be cordoned" if options.dry_run else "cordoned"
    if not is_cordoned:
        what = "can be uncordoned" if options.dry_run else "uncordoned"
    output = Output("table")
    for name in chosen:
        output.line(f"broker {options.broker}: {name} {what}")
    return DONE
