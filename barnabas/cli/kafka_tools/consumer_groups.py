"""kafka-consumer-groups: list, describe and delete groups, reset and delete their offsets; output and exit codes are those of Kafka 4.3.

As in Kafka, what a broker refuses is printed as `Error: …`, and the exit code is 0 all the same; 1 is for a command line without a meaning.
Not here: --verbose, --validate-regex.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterable
from typing import Any

from barnabas.cli.cluster_facts import Partition
from barnabas.cli.cluster_facts import offsets as list_offsets
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, FAILED, CommandError, NoBrokerError
from barnabas.cli.group.facts import describe_groups, is_missing
from barnabas.cli.group.offsets import committed, group_ids, latest
from barnabas.cli.group.states import list_groups, states_of
from barnabas.cli.kafka_tools.consumer_group_offsets import add_reset_arguments, delete_offsets, find_conflict, reset_offsets
from barnabas.cli.kafka_tools.run import UsageError, add_connection, error_text, settings_of

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
WITH_GROUPS = frozenset({"describe", "delete", "reset-offsets"})
OFFSETS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
OFFSET_WIDTHS = (15, 15, 10, 15, 15, 15, 15, 15, 0)
GROWS = frozenset({"GROUP", "TOPIC", "CONSUMER-ID", "HOST"})
MEMBERS = ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
MEMBER_WIDTHS = (15, 15, 17, 15, 15, 15)
TIMEOUT_MS = 30_000
NO_VALUE = "-"
ANY = ""
"""Of --state and --type without a value."""
STATES = ("Assigning", "CompletingRebalance", "Dead", "Empty", "PreparingRebalance", "Reconciling", "Stable")
TYPES = ("Classic", "Consumer")
REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    for action in ACTIONS:
        add(f"--{action}", action="append_const", dest="actions", const=action)
    add("--group", action="append", default=[], metavar="GROUP")
    add("--all-groups", action="store_true")
    add("--topic", action="append", default=[], metavar="TOPIC[:N,…]")
    add("--all-topics", action="store_true")
    add("--offsets", action="store_true", help="of --describe: what it shows if nothing else is said")
    add("--members", action="store_true", help="of --describe")
    add("--state", nargs="?", const=ANY, metavar="STATE,…", help="of --describe and --list")
    add("--type", nargs="?", const=ANY, metavar="TYPE,…", help="of --list")
    add("--timeout", type=int, default=TIMEOUT_MS, metavar="MS", help=f"to wait for an answer ({TIMEOUT_MS})")
    add_reset_arguments(parser)
    add_connection(parser)


def run(options: argparse.Namespace) -> int:
    try:
        if len(options.actions or ()) != 1:
            raise UsageError(f"Command must include exactly one action: {', '.join(f'--{action}' for action in ACTIONS)}")
        (action,) = options.actions
        _check(action, options)
        return _run(action, options)
    except UsageError as e:
        print(e, file=sys.stderr)
        return FAILED


def _check(action: str, options: argparse.Namespace) -> None:
    """Raises UsageError."""
    if action in WITH_GROUPS and not (options.group or options.all_groups):
        raise UsageError(f"Option [{action}] takes one of these options: [all-groups], [group]")
    if options.group and options.all_groups:
        raise UsageError('Option "[group]" can\'t be used with option "[all-groups]"')
    if action == "describe" and sum((options.offsets, options.members, options.state is not None)) > 1:
        raise UsageError("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if action == "describe" and options.state:
        raise UsageError("Option [describe] does not take a value for [state]")
    if action == "delete" and options.topic:
        raise UsageError("The consumer does not support topic-specific offset deletion from a consumer group.")
    if action == "delete-offsets" and not (options.group and options.topic):
        raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if action == "reset-offsets" and (conflict := find_conflict(options)):
        raise UsageError(conflict)
    if action == "reset-offsets" and not (options.dry_run or options.execute):
        print(
            "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require either "
            "--dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are scripting this command and "
            "want to keep the current default behavior without prompting.",
            file=sys.stderr,
        )


def _run(action: str, options: argparse.Namespace) -> int:
    settings = dataclasses.replace(settings_of(options), timeout_s=options.timeout / 1_000)
    with Connection(settings) as connection:
        try:
            if action == "list":
                _list(connection, options)
                return DONE
            names = group_ids(connection) if options.all_groups else list(dict.fromkeys(options.group))
            if action == "describe":
                _describe(connection, names, options)
            elif action == "reset-offsets":
                reset_offsets(connection, names, options)
            elif action == "delete-offsets":
                delete_offsets(connection, names[0], options.topic)
            else:
                _delete(connection, names)
        except UsageError:
            raise
        except (CommandError, OSError) as e:
            # Kafka's tool says so and ends with 0; that no broker answers, it finds out by its timeout.
            print(f"\nError: Executing consumer group command failed due to {error_text(e)}")
            return FAILED if isinstance(e, NoBrokerError) else DONE
    return DONE


def _list(connection: Connection, options: argparse.Namespace) -> None:
    if options.state is None and options.type is None:
        for name in group_ids(connection):
            print(name)
        return
    states, types = _chosen(options.state, STATES, "state"), _chosen(options.type, TYPES, "type")
    found = [
        each for each in list_groups(connection) if (not states or each.state in states) and (not types or each.kind.capitalize() in types)
    ]
    shown = [
        ("GROUP", "TYPE", "STATE"),
        *((each.name, each.kind.capitalize() or "Unknown", each.state or "Unknown") for each in found),
    ]
    width = max((15, *(len(each.name) for each in found))) + 10
    for name, kind, state in shown:
        columns = ([kind] if options.type is not None else []) + ([state] if options.state is not None else [])
        print(" ".join((f"{name:{width}}", *(f"{column:20}" for column in columns))))


def _chosen(text: str | None, known: tuple[str, ...], what: str) -> set[str]:
    """Of a list with commas, in any case; none if it is empty. Raises UsageError."""
    by_lower = {each.lower(): each for each in known}
    words = [word.strip().lower() for word in (text or "").split(",") if word.strip()]
    if unknown := [word for word in words if word not in by_lower]:
        raise UsageError(f"Invalid {what} list '{text}': {', '.join(unknown)}. Valid {what}s are: {', '.join(known)}")
    return {by_lower[word] for word in words}


def _describe(connection: Connection, names: list[str], options: argparse.Namespace) -> None:
    described = describe_groups(connection, names)
    for name in names:
        if is_missing(described[name]):
            raise CommandError(f"org.apache.kafka.common.errors.GroupIdNotFoundException: Group {name} not found.")
        if isinstance(described[name], CommandError):
            raise described[name]
    states = states_of(connection, described)
    offsets = {} if options.members or options.state is not None else committed(connection, names)
    for name in sorted(names):
        group = described[name]
        if options.state is not None:
            if _is_shown(name, states[name], 1):
                _print_state(name, group, states[name])
        elif options.members:
            rows = [_member_row(name, member) for member in group.members]
            if _is_shown(name, states[name], len(rows)):
                _print_members(rows)
        else:
            own = offsets[name]
            if isinstance(own, CommandError):
                raise own
            offset_rows = _offset_rows(connection, name, own, group.members)
            if _is_shown(name, states[name], len(offset_rows)):
                _print_offsets(offset_rows)


def _is_shown(name: str, state: str, rows: int) -> bool:
    """Whether there is something to show; says on stderr why there is nothing, or that it may change soon."""
    if state == "Dead":
        print(f"\nError: Consumer group '{name}' does not exist.")
    elif state == "Empty":
        print(f"\nConsumer group '{name}' has no active members.", file=sys.stderr)
    elif state in REBALANCING:
        print(f"\nWarning: Consumer group '{name}' is rebalancing.", file=sys.stderr)
    return state != "Dead" and rows > 0


def _print_state(name: str, group: Any, state: str) -> None:
    where = f"{group.coordinator.host}:{group.coordinator.port}  ({group.coordinator.id})"
    widths = (max(15, len(name)), max(25, len(where)), 20, 20)
    for cells in (
        ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"),
        (name, where, group.partition_assignor or NO_VALUE, state, str(len(group.members))),
    ):
        print("\n" + _padded(cells[:-1], widths) + f" {cells[-1]}", end="")
    print()


def _member_row(name: str, member: Any) -> tuple[str, ...]:
    count = len(member.assignment.topic_partitions)
    return (name, member.member_id, member.group_instance_id or "", member.host, member.client_id, str(count))


def _print_members(rows: list[tuple[str, ...]]) -> None:
    has_instances = any(row[2] for row in rows)
    chosen = [index for index in range(len(MEMBERS)) if index != 2 or has_instances]
    widths = [max(MEMBER_WIDTHS[index], *(len(row[index]) for row in rows)) for index in chosen]
    print()
    for row in (MEMBERS, *rows):
        print(_padded((row[index] for index in chosen), widths) + " ")


def _offset_rows(connection: Connection, name: str, own: dict[Partition, int], members: Iterable[Any]) -> list[tuple[str, ...]]:
    """The partitions of the members with the most of them first, then those that nobody has."""
    owned = [
        (member, sorted((each.topic, each.partition) for each in member.assignment.topic_partitions))
        for member in sorted(members, key=lambda member: -len(member.assignment.topic_partitions))
    ]
    assigned = {each for _, partitions in owned for each in partitions}
    owned.append((None, sorted(own.keys() - assigned)))
    ends = list_offsets(connection, sorted(own.keys() | assigned), latest())
    rows = []
    for member, partitions in owned:
        owner = (NO_VALUE,) * 3 if member is None else (member.member_id, member.host, member.client_id)
        for each in partitions:
            offset, end = own.get(each), ends[each]
            lag = None if offset is None or end is None else end - offset
            numbers = (NO_VALUE if number is None else str(number) for number in (offset, end, lag))
            rows.append((name, each[0], str(each[1]), *numbers, *owner))
    return rows


def _print_offsets(rows: list[tuple[str, ...]]) -> None:
    widths = [
        max(width, *(len(row[index]) for row in rows)) if title in GROWS else width
        for index, (title, width) in enumerate(zip(OFFSETS, OFFSET_WIDTHS, strict=True))
    ]
    for row in (OFFSETS, *rows):
        print("\n" + _padded(row, widths), end="")
    print()


def _padded(cells: Iterable[str], widths: Iterable[int]) -> str:
    return " ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True))


def _delete(connection: Connection, names: list[str]) -> None:
    answers = connection.attempts(connection.admin.delete_consumer_groups(names, request_timeout=connection.timeout_s)) if names else {}
    failed = {name: answer for name, answer in answers.items() if isinstance(answer, CommandError)}
    deleted = ", ".join(f"'{name}'" for name in answers if name not in failed)
    if not failed:
        print(f"Deletion of requested consumer groups ({deleted}) was successful.")
        return
    print("\nError: Deletion of some consumer groups failed:")
    for name, why in failed.items():
        print(f"* Group '{name}' could not be deleted due to: {error_text(why)}")
    if deleted:
        print(f"\nThese consumer groups were deleted successfully: {deleted}")
