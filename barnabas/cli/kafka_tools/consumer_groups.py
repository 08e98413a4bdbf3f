"""kafka-consumer-groups: list, describe and delete groups, reset and delete their offsets; output and exit codes are those of Kafka 4.3.

As in Kafka, what a broker refuses is printed as `Error: …`, and the exit code is 0 all the same; 1 is for a command line without a meaning.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.cli.cluster_facts import Partition
from barnabas.cli.cluster_facts import offsets as list_offsets
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, FAILED, CommandError, NoBrokerError
from barnabas.cli.group.facts import describe_groups, is_missing
from barnabas.cli.group.offsets import Committed, committed_with_epochs, group_ids, latest
from barnabas.cli.group.states import epochs_of, list_groups, states_of
from barnabas.cli.kafka_tools.consumer_group_offsets import add_reset_arguments, delete_offsets, find_conflict, reset_offsets
from barnabas.cli.kafka_tools.run import UsageError, add_connection, error_text, settings_of
from config.safe_patterns import PatternError, SafePattern
from protocol.messages.consumer_group_describe import DescribedConsumerGroup

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
WITH_GROUPS = frozenset({"describe", "delete", "reset-offsets"})
OFFSETS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
LEADER_EPOCH = "LEADER-EPOCH"
WITH_EPOCH = (*OFFSETS[:3], LEADER_EPOCH, *OFFSETS[3:])
OFFSET_WIDTHS = dict(zip(WITH_EPOCH, (15, 15, 10, 15, 15, 15, 15, 15, 15, 0), strict=True))
GROWS = frozenset({"GROUP", "TOPIC", "CONSUMER-ID", "HOST"})
MEMBERS = ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
MEMBER_WIDTHS = (15, 15, 17, 15, 15, 15)
MEMBERS_VERBOSE = ("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT")
MEMBER_VERBOSE_WIDTHS = (15, 20, 15, 20)
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1
"""ConsumerGroupDescribe's member_type."""
TIMEOUT_MS = 30_000
NO_VALUE = "-"
ANY = ""
"""Of --state and --type without a value."""
STATES = ("Assigning", "CompletingRebalance", "Dead", "Empty", "PreparingRebalance", "Reconciling", "Stable")
TYPES = ("Classic", "Consumer")
JAVAS_WORDS = {
    "missing ]": "missing closing ]", "missing )": "missing closing )", "no argument for repetition operator":
    "missing argument to repetition operator", "trailing \\": "trailing backslash at end of expression", "invalid repetition size":
    "invalid repeat count", "bad repetition operator": "invalid nested repetition operator", "invalid perl operator":
    "invalid or unsupported Perl syntax", "invalid named capture group": "invalid named capture",
}  # fmt: skip
"""RE2's errors, each with the text that its port to Java has for it: Kafka's tool prints that one."""
REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    for action in ACTIONS[:-1]:
        add(f"--{action}", action="append_const", dest="actions", const=action)
    add(
        "--validate-regex",
        metavar="REGEX",
        help="whether it is one of RE2's, as consumers of KIP-848 groups subscribe with; asks no broker",
    )
    add("--group", action="append", default=[], metavar="GROUP")
    add("--all-groups", action="store_true")
    add("--topic", action="append", default=[], metavar="TOPIC[:N,…]")
    add("--all-topics", action="store_true")
    add("--offsets", action="store_true", help="of --describe: what it shows if nothing else is said")
    add("--members", action="store_true", help="of --describe")
    add("--verbose", action="store_true", help="of --describe: epochs, and the partitions of each member, too")
    add("--state", nargs="?", const=ANY, metavar="STATE,…", help="of --describe and --list")
    add("--type", nargs="?", const=ANY, metavar="TYPE,…", help="of --list")
    add("--timeout", type=int, default=TIMEOUT_MS, metavar="MS", help=f"to wait for an answer ({TIMEOUT_MS})")
    add_reset_arguments(parser)
    add_connection(parser, is_required=False)


def run(options: argparse.Namespace) -> int:
    try:
        actions = [*(options.actions or ()), *(["validate-regex"] if options.validate_regex is not None else ())]
        if len(actions) != 1:
            raise UsageError(f"Command must include exactly one action: {', '.join(f'--{action}' for action in ACTIONS)}")
        (action,) = actions
        if action == "validate-regex":
            print(_validity(options.validate_regex))
            return DONE
        _check(action, options)
        return _run(action, options)
    except UsageError as e:
        print(e, file=sys.stderr)
        return FAILED


def _check(action: str, options: argparse.Namespace) -> None:
    """Raises UsageError."""
    if options.bootstrap_server is None:
        raise UsageError('Missing required argument "[bootstrap-server]"')
    if options.verbose and action != "describe":
        raise UsageError("Option(s) [verbose] are unavailable given other options on the command line")
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
    offsets = {} if options.members or options.state is not None else committed_with_epochs(connection, names)
    epochs = epochs_of(connection, described) if options.verbose and not offsets else {}
    for name in sorted(names):
        group = described[name]
        verbose = Verbose(epochs.get(name)) if options.verbose else None
        if options.state is not None:
            if _is_shown(name, states[name], 1):
                _print_state(name, group, states[name], verbose)
        elif options.members:
            _is_shown(name, states[name], len(group.members))
            _print_members(name, group.members, verbose)
        else:
            own = offsets[name]
            if isinstance(own, CommandError):
                raise own
            offset_rows = _offset_rows(connection, name, own, group.members)
            if _is_shown(name, states[name], len(offset_rows)):
                _print_offsets(offset_rows, [title for title in WITH_EPOCH if options.verbose or title != LEADER_EPOCH])


def _is_shown(name: str, state: str, rows: int) -> bool:
    """Whether there is something to show; says on stderr why there is nothing, or that it may change soon."""
    if state == "Dead":
        print(f"\nError: Consumer group '{name}' does not exist.")
    elif state == "Empty":
        print(f"\nConsumer group '{name}' has no active members.", file=sys.stderr)
    elif state in REBALANCING:
        print(f"\nWarning: Consumer group '{name}' is rebalancing.", file=sys.stderr)
    return state != "Dead" and rows > 0


@dataclass(frozen=True, slots=True)
class Verbose:
    """What --verbose adds. `told` is a KIP-848 group's; a classic one has no epochs and no assignment that its members go to."""

    told: DescribedConsumerGroup | None

    def of_group(self) -> tuple[str, str]:
        """Its epoch, and that of the assignment its members go to."""
        return (NO_VALUE, NO_VALUE) if self.told is None else (str(self.told.group_epoch), str(self.told.assignment_epoch))

    def of_member(self, member: Any) -> tuple[str, ...]:
        """In the order of MEMBERS_VERBOSE."""
        own = None if self.told is None else next((each for each in self.told.members if each.member_id == member.member_id), None)
        if self.told is None or own is None:
            return NO_VALUE, _assignment(_partitions_of(member.assignment)), NO_VALUE, NO_VALUE
        current, target = (
            [(topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions]
            for assignment in (own.assignment, own.target_assignment)
        )
        return str(own.member_epoch), _assignment(current), str(self.told.assignment_epoch), _assignment(target)

    def upgraded(self) -> dict[str, str]:
        """Of a group whose members are of both protocols: by member whether it is of KIP-848's."""
        kinds = {} if self.told is None else {each.member_id: each.member_type for each in self.told.members}
        if not {CLASSIC_MEMBER, CONSUMER_MEMBER} <= {*kinds.values()}:
            return {}
        return {name: str(kind == CONSUMER_MEMBER).lower() for name, kind in kinds.items()}


def _partitions_of(assignment: Any) -> list[Partition]:
    return [(each.topic, each.partition) for each in assignment.topic_partitions]


def _assignment(partitions: Iterable[Partition]) -> str:
    """As Kafka's tool writes it: orders:0,1;payments:2."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(index)
    return ";".join(sorted(f"{topic}:{','.join(map(str, sorted(own)))}" for topic, own in by_topic.items())) or NO_VALUE


def _print_state(name: str, group: Any, state: str, verbose: Verbose | None) -> None:
    where = f"{group.coordinator.host}:{group.coordinator.port}  ({group.coordinator.id})"
    widths = (max(15, len(name)), max(25, len(where)), 20, 20, *(() if verbose is None else (15, 25)))
    titles = () if verbose is None else ("GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH")
    epochs = () if verbose is None else verbose.of_group()
    for cells in (
        ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", *titles, "#MEMBERS"),
        (name, where, group.partition_assignor or NO_VALUE, state, *epochs, str(len(group.members))),
    ):
        print("\n" + _padded(cells[:-1], widths) + f" {cells[-1]}", end="")
    print()


def _print_members(name: str, members: Sequence[Any], verbose: Verbose | None) -> None:
    """The titles also where there is no member, as Kafka's tool."""
    has_instances = any(member.group_instance_id for member in members)
    chosen = [index for index in range(len(MEMBERS)) if index != 2 or has_instances]
    rows = [MEMBERS, *(_member_row(name, member) for member in members)]
    widths = [max(width, *(len(row[index]) for row in rows)) for index, width in enumerate(MEMBER_WIDTHS)]
    details: list[tuple[str, ...]] = [()] * len(rows)
    if verbose is not None:
        details = [MEMBERS_VERBOSE, *map(verbose.of_member, members)]
        if upgraded := verbose.upgraded():
            details = [
                (*details[0], "UPGRADED"),
                *((*row, upgraded[each.member_id]) for row, each in zip(details[1:], members, strict=True)),
            ]
    own_widths = [max(width, *(len(row[index]) for row in details)) for index, width in enumerate(MEMBER_VERBOSE_WIDTHS if verbose else ())]
    print()
    for row, more in zip(rows, details, strict=True):
        told = _padded((row[index] for index in chosen), (widths[index] for index in chosen))
        print(f"{told} {_padded(more, [*own_widths, 0][: len(more)])}")


def _member_row(name: str, member: Any) -> tuple[str, ...]:
    count = len(member.assignment.topic_partitions)
    return (name, member.member_id, member.group_instance_id or "", member.host, member.client_id, str(count))


def _offset_rows(connection: Connection, name: str, own: dict[Partition, Committed], members: Iterable[Any]) -> list[dict[str, str]]:
    """The partitions of the members with the most of them first, then those that nobody has."""
    owned = [
        (member, sorted(_partitions_of(member.assignment)))
        for member in sorted(members, key=lambda member: -len(member.assignment.topic_partitions))
    ]
    assigned = {each for _, partitions in owned for each in partitions}
    owned.append((None, sorted(own.keys() - assigned)))
    ends = list_offsets(connection, sorted(own.keys() | assigned), latest())
    rows = []
    for member, partitions in owned:
        owner = (NO_VALUE,) * 3 if member is None else (member.member_id, member.host, member.client_id)
        for each in partitions:
            offset, epoch = own.get(each, (None, None))
            end = ends[each]
            lag = None if offset is None or end is None else end - offset
            numbers = (NO_VALUE if number is None else str(number) for number in (epoch, offset, end, lag))
            rows.append(dict(zip(WITH_EPOCH, (name, each[0], str(each[1]), *numbers, *owner), strict=True)))
    return rows


def _print_offsets(rows: list[dict[str, str]], titles: Sequence[str]) -> None:
    widths = [max(OFFSET_WIDTHS[title], *(len(row[title]) for row in rows)) if title in GROWS else OFFSET_WIDTHS[title] for title in titles]
    for row in (titles, *([row[title] for title in titles] for row in rows)):
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


def _validity(text: str) -> str:
    """Whether a group's member may subscribe with this regular expression: in RE2's syntax, and not larger than a broker takes."""
    try:
        SafePattern(text)
    except PatternError as e:
        why = str(e).partition(": ")[0]
        return f"The regular expression `{text}` is invalid: {JAVAS_WORDS.get(why, why)}."
    return f"The regular expression `{text}` is valid."
