"""kafka-consumer-groups: list, describe and delete groups. To reset offsets: barnabas group reset, which has Kafka's rules."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from barnabas.cli.cluster_facts import Partition
from barnabas.cli.cluster_facts import offsets as list_offsets
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, FAILED, CommandError
from barnabas.cli.group.facts import describe_groups, is_missing
from barnabas.cli.group.offsets import committed, group_ids, latest
from barnabas.cli.kafka_tools.run import add_connection, settings_of

ACTIONS = ("list", "describe", "delete")
TITLES = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
WIDTHS = (15, 15, 10, 15, 15, 15, 15, 15, 0)
GROWS = frozenset({"GROUP", "TOPIC", "CONSUMER-ID", "HOST"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    for action in ACTIONS:
        add(f"--{action}", action="append_const", dest="actions", const=action)
    add("--group", action="append", default=[], metavar="GROUP")
    add("--all-groups", action="store_true")
    add("--offsets", action="store_true", help="understood: it is what --describe shows")
    add("--timeout", help="understood, and without effect")
    add_connection(parser)


def run(options: argparse.Namespace) -> int:
    if len(options.actions or ()) != 1:
        print(f"Command must include exactly one action: {', '.join(f'--{action}' for action in ACTIONS)}", file=sys.stderr)
        return FAILED
    (action,) = options.actions
    if action != "list" and bool(options.group) == options.all_groups:
        print(f"Option [{action}] takes one of these options: [all-groups], [group]", file=sys.stderr)
        return FAILED
    with Connection(settings_of(options)) as connection:
        if action == "list":
            print("\n".join(group_ids(connection)))
            return DONE
        names = group_ids(connection) if options.all_groups else options.group
        return _describe(connection, names) if action == "describe" else _delete(connection, names)


def _describe(connection: Connection, names: list[str]) -> int:
    described, offsets, code = describe_groups(connection, names), committed(connection, names), DONE
    for name in names:
        group, own = described[name], offsets[name]
        if is_missing(group):
            print(f"\nError: Consumer group '{name}' does not exist.")
            code = FAILED
            continue
        if isinstance(group, CommandError):
            raise group
        if isinstance(own, CommandError):
            raise own
        owners = {(each.topic, each.partition): member for member in group.members for each in member.assignment.topic_partitions}
        if not group.members and own:
            print(f"\nConsumer group '{name}' has no active members.", file=sys.stderr)
        _print(_rows(connection, name, own, owners))
    return code


def _rows(connection: Connection, name: str, own: dict[Partition, int], owners: dict[Partition, Any]) -> list[tuple[str, ...]]:
    ends = list_offsets(connection, sorted(own.keys() | owners.keys()), latest())
    rows = []
    for partition, end in ends.items():
        offset, member = own.get(partition), owners.get(partition)
        lag = None if offset is None or end is None else end - offset
        numbers = ("-" if number is None else str(number) for number in (offset, end, lag))
        owner = ("-", "-", "-") if member is None else (member.member_id, member.host, member.client_id)
        rows.append((name, partition[0], str(partition[1]), *numbers, *owner))
    return rows


def _print(rows: list[tuple[str, ...]]) -> None:
    if not rows:
        return
    widths = [
        max(width, *(len(row[index]) for row in rows)) if title in GROWS else width
        for index, (title, width) in enumerate(zip(TITLES, WIDTHS, strict=True))
    ]
    for row in (TITLES, *rows):
        line = " ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        print(f"\n{line}" if row is TITLES else line)


def _delete(connection: Connection, names: list[str]) -> int:
    answers = connection.attempts(connection.admin.delete_consumer_groups(names, request_timeout=connection.timeout_s)) if names else {}
    failed = {name: answer for name, answer in answers.items() if isinstance(answer, CommandError)}
    deleted = ", ".join(f"'{name}'" for name in answers if name not in failed)
    if failed:
        print("\nError: Deletion of some consumer groups failed:")
        for name, why in failed.items():
            print(f"* Group '{name}' could not be deleted due to: {why}")
        if deleted:
            print(f"\nThese consumer groups were deleted successfully: {deleted}")
        return FAILED
    print(f"Deletion of requested consumer groups ({deleted}) was successful.")
    return DONE
