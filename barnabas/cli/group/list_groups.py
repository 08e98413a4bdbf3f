"""List consumer groups: state, protocol, members, and how far they are behind in total."""

from __future__ import annotations

import argparse
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import offsets as list_offsets
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, CommandError
from barnabas.cli.group.facts import describe_groups, type_of
from barnabas.cli.group.offsets import committed, group_ids, latest, total_lag
from barnabas.cli.group.states import states_of
from barnabas.cli.output import Column, Output, thousands
from barnabas.cli.settings import resolve

COLUMNS = (
    Column("group", "GROUP"),
    Column("state", "STATE"),
    Column("type", "TYPE"),
    Column("protocol", "PROTOCOL"),
    Column("members", "MEMBERS", is_number=True),
    Column("lag", "LAG", thousands, is_number=True),
    Column("topics", "TOPICS", is_wide=True),
    Column("coordinator", "COORDINATOR", is_number=True, is_wide=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pattern", nargs="?", default="", metavar="REGEX", help="only groups whose whole name it matches")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    pattern = arguments.pattern(options.pattern)
    with Connection(resolve(options)) as connection:
        names = [name for name in group_ids(connection) if pattern.fullmatch(name)]
        described, offsets = describe_groups(connection, names), committed(connection, names)
        states = states_of(connection, described)
        known = {partition for each in offsets.values() if not isinstance(each, CommandError) for partition in each}
        ends = list_offsets(connection, sorted(known), latest())
    rows: list[dict[str, Any]] = []
    for name in names:
        group, own = described[name], offsets[name]
        if isinstance(group, CommandError):
            rows.append({"group": name, "state": f"({group})", "type": None, "protocol": None, "members": None})
        else:
            rows.append(
                {
                    "group": name,
                    "state": states[name],
                    "type": type_of(group),
                    "protocol": group.partition_assignor or None,
                    "members": len(group.members),
                }
            )
        rows[-1] |= {
            "lag": None if isinstance(own, CommandError) else total_lag(own, ends),
            "topics": [] if isinstance(own, CommandError) else sorted({topic for topic, _ in own}),
            "coordinator": None if isinstance(group, CommandError) else group.coordinator.id,
        }
    Output(options.output).rows(rows, COLUMNS)
    return DONE
