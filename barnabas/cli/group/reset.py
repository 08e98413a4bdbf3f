"""Set where a group goes on: by offset, by time, or as another group. It must have no members.

The plan is shown first. Rules are those of kafka-consumer-groups --reset-offsets; --to is rpk's group seek.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import Partition, partitions_of, topics_of
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, CommandError, NotUnderstoodError, RefusedError
from barnabas.cli.group.facts import describe_groups, is_missing, parse_topics, refuse_members, within
from barnabas.cli.group.offsets import alter_offsets, committed
from barnabas.cli.group.reset_rules import Rule, read_csv, rule_of, targets
from barnabas.cli.output import Column, Output, confirm
from barnabas.cli.settings import resolve_for_change

COLUMNS = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("committed_offset", "COMMITTED", is_number=True),
    Column("new_offset", "NEW", is_number=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("group", metavar="GROUP")
    add("-t", "--topic", "--topics", action="append", default=[], metavar="TOPIC[:0,1]", help="only these (all with committed offsets)")
    rules = parser.add_mutually_exclusive_group(required=True)
    rules.add_argument("--to", metavar="POSITION", help="start, end, current, 7, +7, -7 (from where it is), @2026-01-31T10:00, @-1h")
    rules.add_argument("--to-earliest", action="store_true")
    rules.add_argument("--to-latest", action="store_true")
    rules.add_argument("--to-current", action="store_true", help="where it is, within what is there")
    rules.add_argument("--to-offset", type=int, metavar="N")
    rules.add_argument("--shift-by", type=int, metavar="N", help="forwards, or with a sign backwards")
    rules.add_argument("--to-datetime", metavar="TIME", help="the first record at or after it")
    rules.add_argument("--by-duration", metavar="DURATION", help="that long before now: 1h30m or PT1H30M")
    rules.add_argument("--to-group", metavar="GROUP", help="where another group is")
    rules.add_argument("--from-file", metavar="FILE", help="lines of topic,partition,offset, as --export of Kafka's tool writes them")
    arguments.add_change(parser, asks=True)
    parser.add_argument("--execute", dest="yes", action="store_true", help="as --yes, as in Kafka's tool")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    rule = rule_of(options)
    with Connection(settings) as connection:
        (group,) = describe_groups(connection, [options.group]).values()
        if isinstance(group, CommandError) and not is_missing(group):
            raise group
        refuse_members(options.group, group, "its offsets are reset")
        current = _committed(connection, options.group)
        chosen = _chosen(connection, options, rule, current)
        new = targets(connection, rule, chosen, current)
        rows = [
            {"topic": each[0], "partition": each[1], "committed_offset": current.get(each), "new_offset": offset}
            for each, offset in sorted(new.items())
        ]
        output = Output(options.output)
        if not rows:
            raise RefusedError("there is nothing to reset: the group has no offsets there; --topic gives it some")
        output.rows(rows, COLUMNS)
        plan = [f"set {len(rows)} offsets of group {options.group}"]
        if confirm(plan, dry_run=options.dry_run, yes=options.yes):
            alter_offsets(connection, options.group, new)
    return DONE


def _committed(connection: Connection, group: str) -> dict[Partition, int]:
    """None are committed by a group that is not there."""
    (own,) = committed(connection, [group]).values()
    if isinstance(own, CommandError):
        if is_missing(own):
            return {}
        raise own
    return own


def _chosen(connection: Connection, options: argparse.Namespace, rule: Rule, current: dict[Partition, int]) -> dict[Partition, int | None]:
    """The partitions to reset, with the offset that a file or another group has for each, if the rule is that."""
    topics = parse_topics(options.topic)
    given: dict[Partition, int] | None = None
    if rule.kind == "file":
        given = read_csv(Path(options.from_file), options.group)
    elif rule.kind == "group":
        given = _committed(connection, options.to_group)
    if given is not None:
        return {each: offset for each, offset in given.items() if within(each, topics)}
    if not topics:
        return dict.fromkeys(current)
    there: dict[str, Any] = topics_of(connection)
    if missing := topics.keys() - there.keys():
        raise RefusedError(f"there is no topic {', '.join(sorted(missing))}")
    chosen = [each for each in partitions_of({name: there[name] for name in topics}) if within(each, topics)]
    wished = {(name, index) for name, indexes in topics.items() for index in indexes or ()}
    if unknown := wished - set(chosen):
        raise NotUnderstoodError(f"there is no partition {', '.join(f'{name}-{index}' for name, index in sorted(unknown))}")
    return dict.fromkeys(chosen)
