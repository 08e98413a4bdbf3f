"""--reset-offsets and --delete-offsets of kafka-consumer-groups (ConsumerGroupCommand, OffsetsUtils)."""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from confluent_kafka.admin import OffsetSpec

from barnabas.cli.cluster_facts import Partition, offsets, partitions_of, starts_and_ends, topics_of
from barnabas.cli.connection import Connection
from barnabas.cli.coordinators import coordinator_of
from barnabas.cli.errors import CommandError
from barnabas.cli.group.facts import describe_groups, is_missing
from barnabas.cli.group.offsets import alter_offsets, committed
from barnabas.cli.group.states import states_of
from barnabas.cli.kafka_tools.run import UsageError
from barnabas.cli.times import parse_duration_ms, parse_time_ms
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic

SCENARIOS = ("to-offset", "shift-by", "to-datetime", "by-duration", "to-earliest", "to-latest", "to-current", "from-file")
INACTIVE = frozenset({"Empty", "Dead"})
QUOTED_FROM = 25
"""Characters of a field that the CSV's writer (Jackson's) quotes without a look at them."""
PLAIN_FROM = "-"
"""The first character of ASCII that needs no quotes for it."""
MESSAGES = {
    ErrorCode.INVALID_GROUP_ID: ("InvalidGroupIdException", "The group id is invalid."),
    ErrorCode.GROUP_ID_NOT_FOUND: ("GroupIdNotFoundException", "The group id does not exist."),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ("GroupAuthorizationException", "Group authorization failed."),
    ErrorCode.NON_EMPTY_GROUP: ("GroupNotEmptyException", "The group is not empty."),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        "GroupSubscribedToTopicException",
        "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it.",
    ),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ("TopicAuthorizationException", "Topic authorization failed."),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ("UnknownTopicOrPartitionException", "This server does not host this topic-partition."),
}  # fmt: skip
NO_TOPIC = "This server does not host this topic-partition."

Offsets = dict[Partition, int]


def add_reset_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    for name in ("to-earliest", "to-latest", "to-current", "dry-run", "execute", "export"):
        add(f"--{name}", action="store_true")
    add("--to-offset", type=int, metavar="OFFSET")
    add("--shift-by", type=int, metavar="NUMBER")
    add("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss")
    add("--by-duration", metavar="PnDTnHnMnS")
    add("--from-file", metavar="FILE")


def find_conflict(options: argparse.Namespace) -> str | None:
    """What two options have against each other, in Kafka's words."""
    if options.dry_run and options.execute:
        return "Option [reset-offsets] only accepts one of [execute] and [dry-run]"
    if len(given := _given(options)) > 1:
        return f'Option "[{given[0]}]" can\'t be used with option "[{given[1]}]"'
    return None


def _given(options: argparse.Namespace) -> list[str]:
    return [name for name in SCENARIOS if getattr(options, name.replace("-", "_")) not in (None, False)]


def reset_offsets(connection: Connection, names: list[str], options: argparse.Namespace) -> None:
    """Raises CommandError, UsageError."""
    described = describe_groups(connection, names)
    for group in described.values():
        if isinstance(group, CommandError) and not is_missing(group):
            raise group
    states = states_of(connection, described)
    new: dict[str, Offsets] = {}
    for name in names:
        if states.get(name, "Dead") not in INACTIVE:
            print(f"\nError: Assignments can only be reset if the group '{name}' is inactive, but the current state is {states[name]}.")
            new[name] = {}
            continue
        new[name] = _prepared(connection, name, options)
        if options.execute and new[name]:
            alter_offsets(connection, name, new[name])
    if options.export:
        _export(new, is_single=len(options.group) == 1)
    else:
        _print(new)


def _prepared(connection: Connection, group: str, options: argparse.Namespace) -> Offsets:
    """The new offsets of a group. Raises CommandError, UsageError."""
    own = _committed(connection, group)
    chosen = _scope(connection, own, options)
    given = _given(options)
    if not given:
        raise UsageError(
            f"Option '[reset-offsets]' requires one of the following scenarios: {', '.join(f'[{name}]' for name in SCENARIOS)}"
        )
    (scenario,) = given
    if scenario == "from-file":
        plan = _read(Path(options.from_file), options).get(group)
        if plan is None:
            print(f"\nError: No reset plan for group {group} found")
            return {}
        return _within(connection, plan)
    if scenario == "to-offset":
        return _within(connection, dict.fromkeys(chosen, options.to_offset))
    if scenario == "shift-by":
        for name, index in chosen:
            if (name, index) not in own:
                raise UsageError(f"Cannot shift offset for partition {name}-{index} since there is no current committed offset")
        return _within(connection, {each: own[each] + options.shift_by for each in chosen})
    if scenario in ("to-datetime", "by-duration"):
        now_ms = time.time_ns() // 1_000_000
        is_duration = scenario == "by-duration"
        time_ms = now_ms - parse_duration_ms(options.by_duration) if is_duration else parse_time_ms(options.to_datetime, now_ms)
        return _at(connection, chosen, time_ms)
    spec = OffsetSpec.earliest() if scenario == "to-earliest" else OffsetSpec.latest()
    kept = {each: own[each] for each in chosen if each in own} if scenario == "to-current" else {}
    return kept | _known(offsets(connection, [each for each in chosen if each not in kept], spec))


def _committed(connection: Connection, group: str) -> Offsets:
    own = committed(connection, [group])[group]
    if isinstance(own, CommandError):
        if is_missing(own):
            return {}
        raise own
    return own


def _scope(connection: Connection, own: Offsets, options: argparse.Namespace) -> list[Partition]:
    """Raises CommandError, UsageError."""
    if not options.all_topics and not options.topic:
        if options.from_file is None:
            raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
        return []
    there = topics_of(connection)
    existing = {*partitions_of(there)}
    if options.all_topics:
        chosen = list(own)
    else:
        named, whole = _parse_topics(options.topic)
        if any(name not in there for name in whole):
            raise CommandError(NO_TOPIC)
        chosen = named + [each for each in sorted(existing) if each[0] in whole]
    if unknown := [f"{name}-{index}" for name, index in chosen if (name, index) not in existing]:
        raise CommandError(f'The partitions "{",".join(unknown)}" do not exist')
    if leaderless := [f"{name}-{index}" for name, index in chosen if there[name].partitions[index].leader < 0]:
        raise CommandError(f'The partitions "{",".join(leaderless)}" have no leader')
    return list(dict.fromkeys(chosen))


def _parse_topics(words: Iterable[str]) -> tuple[list[Partition], list[str]]:
    """Partitions of `TOPIC:0,1`, and topics that are named alone. Raises UsageError."""
    partitions: list[Partition] = []
    topics: list[str] = []
    for word in words:
        name, *numbers = word.split(":")
        if not numbers:
            topics.append(name)
            continue
        if len(numbers) != 1:
            raise UsageError(f"Invalid topic arg '{word}', expected topic name and partitions")
        for number in numbers[0].split(","):
            if not number.isdigit():
                raise UsageError(f"Invalid partition '{number}' specified in topic arg '{word}''")
            partitions.append((name, int(number)))
    return partitions, topics


def _read(path: Path, options: argparse.Namespace) -> dict[str, Offsets]:
    """By group: of one group lines of topic,partition,offset, or of any with the group before them. Raises CommandError."""
    plans: dict[str, Offsets] = defaultdict(dict)
    try:
        rows = list(csv.reader(path.read_text().splitlines()))
        has_group = not (len(options.group) == 1 and all(len(row) == 3 for row in rows[:1]))
        for row in rows:
            group, topic, partition, offset = row if has_group else (options.group[0], *row)
            plans[group][topic, int(partition)] = int(offset)
    except (OSError, ValueError, csv.Error) as e:
        raise CommandError(f"{path}: {e}") from e
    return plans


def _within(connection: Connection, wished: Mapping[Partition, int]) -> Offsets:
    """Within what is in the log, with a warning. Raises CommandError."""
    new = {}
    for (name, index), (start, end) in starts_and_ends(connection, wished).items():
        if start is None or end is None:
            raise CommandError(f'The partitions "{name}-{index}" do not exist')
        offset = wished[name, index]
        new[name, index] = min(max(offset, start), end)
        if offset != new[name, index]:
            bound = "higher than latest" if offset > end else "lower than earliest"
            print(
                f"WARN New offset ({offset}) is {bound} offset for topic partition {name}-{index}. Value will be set to {new[name, index]}",
                file=sys.stderr,
            )
    return new


def _at(connection: Connection, chosen: list[Partition], time_ms: int) -> Offsets:
    found = offsets(connection, chosen, OffsetSpec.for_timestamp(time_ms))
    without = [each for each, offset in found.items() if offset is None]
    for name, index in without:
        print(f"\nWarn: Partition {index} from topic {name} is empty. Falling back to latest known offset.")
    return _known({**found, **offsets(connection, without, OffsetSpec.latest())})


def _known(found: Mapping[Partition, int | None]) -> Offsets:
    """Raises CommandError."""
    for (name, index), offset in found.items():
        if offset is None:
            raise CommandError(f'The partitions "{name}-{index}" have no leader')
    return {each: offset for each, offset in found.items() if offset is not None}


def _print(new: Mapping[str, Offsets]) -> None:
    rows = [(group, name, str(index), str(offset)) for group, own in new.items() for (name, index), offset in sorted(own.items())]
    group_width, topic_width = max((15, *map(len, new))), max((15, *(len(row[1]) for row in rows)))
    for row in (("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), *rows):
        print(f"\n{row[0]:{group_width}} {row[1]:{topic_width}} {row[2]:10} {row[3]}", end="")
    print()


def _export(new: Mapping[str, Offsets], *, is_single: bool) -> None:
    for group, own in new.items():
        for (name, index), offset in sorted(own.items()):
            fields = ([] if is_single else [_field(group)]) + [_field(name), str(index), str(offset)]
            print(",".join(fields))
    print()


def _field(text: str) -> str:
    is_plain = len(text) < QUOTED_FROM and all(character >= PLAIN_FROM for character in text)
    return text if is_plain else '"' + text.replace('"', '""') + '"'


def delete_offsets(connection: Connection, group: str, words: Iterable[str]) -> None:
    """Raises CommandError, UsageError."""
    named, whole = _parse_topics(words)
    there = topics_of(connection)
    unknown = [name for name in whole if name not in there]
    partitions = sorted({*named, *partitions_of({name: there[name] for name in whole if name in there})})
    by_topic: dict[str, list[OffsetDeleteRequestPartition]] = defaultdict(list)
    for name, index in partitions:
        by_topic[name].append(OffsetDeleteRequestPartition(partition_index=index))
    topics = [OffsetDeleteRequestTopic(name=name, partitions=each) for name, each in by_topic.items()]
    answer = connection.wire(coordinator_of(connection, group)).request(OffsetDeleteRequest(group_id=group, topics=topics))
    whole_code = ErrorCode(answer.error_code)
    codes = {(topic.name, each.partition_index): ErrorCode(each.error_code) for topic in answer.topics for each in topic.partitions}
    if whole_code != ErrorCode.NONE:
        print(f"\nError: {MESSAGES.get(whole_code, ('', whole_code.name))[1]}")
    elif all(code == ErrorCode.NONE for code in codes.values()):
        print(f"Request succeeded for deleting offsets from group {group}.")
    else:
        print("\nError: Encountered some partition-level error, see the follow-up details.")
    rows = [(name, "-", _status(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)) for name in unknown]
    rows += [(each[0], str(each[1]), _status(whole_code or codes[each])) for each in partitions]
    width = max((15, *(len(row[0]) for row in rows)))
    for row in (("TOPIC", "PARTITION", "STATUS"), *rows):
        print(f"\n{row[0]:{width}} {row[1]:10} {row[2]:15}", end="")
    print()


def _status(code: ErrorCode) -> str:
    if code == ErrorCode.NONE:
        return "Successful"
    name, text = MESSAGES.get(code, ("KafkaException", code.name))
    return f"Error: org.apache.kafka.common.errors.{name}: {text}"
