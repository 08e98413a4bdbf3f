"""kafka-topics: list, describe, create, alter and delete topics."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka.admin import NewPartitions, NewTopic, ResourceType

from barnabas.cli.cluster_facts import INTERNAL, Partition, configs, is_default
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, FAILED, CommandError, NoBrokerError, RefusedError
from barnabas.cli.kafka_tools.run import add_connection, settings_of
from barnabas.cli.kafka_tools.topic_filters import include_list
from barnabas.cli.reassignment.moves import Move, in_progress
from barnabas.cli.topic_facts import wait_until_seen
from protocol.errors import DecodeError
from protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.uuids import ZERO_UUID, uuid_from_text, uuid_to_text

ACTIONS = ("list", "describe", "create", "alter", "delete")
EXACTLY_ONE = "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
DELETE_CONFIG = (
    "delete-config option is no longer supported and deprecated since version 4.0. The config will be fully removed in future releases."
)
PAGE_SIZE = 2_000
"""Partitions that are asked for at once."""
COLLISION = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    for action in ACTIONS:
        add(f"--{action}", action="append_const", dest="actions", const=action)
    add("--topic", action="append", metavar="TOPIC", help="a name; but for --create, regular expressions with commas between")
    add("--topic-id", metavar="ID", help="of --describe")
    add("--partitions", type=int, metavar="N")
    add("--replication-factor", type=int, metavar="N")
    add("--replica-assignment", metavar="BROKER:BROKER,…", help="brokers of each partition")
    add("--config", action="append", default=[], metavar="KEY=VALUE")
    add("--delete-config", action="append", default=[], metavar="KEY", help="has no meaning any more, as in Kafka since 4.0")
    add("--partition-size-limit-per-response", type=int, default=PAGE_SIZE, metavar="N", help=f"of --describe ({PAGE_SIZE})")
    add("--if-not-exists", action="store_true")
    add("--if-exists", action="store_true")
    add("--exclude-internal", action="store_true")
    add("--topics-with-overrides", action="store_true")
    add("--under-replicated-partitions", action="store_true")
    add("--unavailable-partitions", action="store_true")
    add("--under-min-isr-partitions", action="store_true")
    add("--at-min-isr-partitions", action="store_true")
    add_connection(parser)


def run(options: argparse.Namespace) -> int:
    if len(options.actions or ()) != 1:
        print(EXACTLY_ONE, file=sys.stderr)
        return FAILED
    (action,) = options.actions
    if action in ("create", "alter", "delete") and not options.topic:
        print(f'Missing required argument "[topic]" for --{action}', file=sys.stderr)
        return FAILED
    if options.delete_config:
        print(DELETE_CONFIG, file=sys.stderr)
    with Connection(settings_of(options)) as connection:
        try:
            ACTION[action](connection, options)
        except NoBrokerError:
            raise
        except CommandError as e:
            print(f"Error while executing topic command : {_cause(e)}")
            return FAILED
    return DONE


def _list(connection: Connection, options: argparse.Namespace) -> None:
    for name in _chosen(connection, options, must_exist=False):
        print(name)


def _describe(connection: Connection, options: argparse.Namespace) -> None:
    topic_id = _topic_id(options)
    names = _chosen(connection, options, must_exist=not options.if_exists) if topic_id is None else _named(connection, options, topic_id)
    settings = configs(connection, ResourceType.TOPIC, names) if names else {}
    kinds, moves = _kinds(options), _moves(connection) if names else {}
    for topic in _partitions(connection, names, options.partition_size_limit_per_response, is_by_id=topic_id is not None):
        changed = [f"{entry.name}={entry.value}" for entry in settings[topic.name].values() if not is_default(entry)]
        if options.topics_with_overrides and not changed:
            continue
        entry = settings[topic.name].get("min.insync.replicas")
        isr_min = 1 if entry is None else int(entry.value)
        found = [Described(each, moves.get((topic.name, each.partition_index)), isr_min) for each in topic.partitions]
        if not kinds:
            replicas = found[0].replication_factor if found else 0
            facts = [f"PartitionCount: {len(found)}", f"ReplicationFactor: {replicas}", f"Configs: {','.join(sorted(changed))}"]
            print("\t".join([f"Topic: {topic.name}", f"TopicId: {uuid_to_text(topic.topic_id)}", *facts]))
        for each in [] if options.topics_with_overrides else found:
            if not kinds or any(is_one(each) for is_one in kinds):
                print(_line(topic.name, each))


class Described(NamedTuple):
    """A partition as a broker tells it. `move` is its reassignment, None without one; `isr_min` its min.insync.replicas."""

    partition: Any
    move: Move | None
    isr_min: int

    @property
    def replication_factor(self) -> int:
        """Without the replicas that a reassignment adds, which are not in sync at first: they are no reason for an alarm
        (TopicCommand.getReplicationFactor)."""
        changing = {*self.move.adding, *self.move.removing} if self.move is not None else set()
        if self.move is None or not changing.intersection(self.partition.replica_nodes):
            return len(self.partition.replica_nodes)
        return len(self.move.replicas) - len(self.move.adding)


def _moves(connection: Connection) -> Mapping[Partition, Move]:
    """The reassignments in progress; none where they are not told to this client, as in Kafka's tool. Raises CommandError."""
    try:
        return in_progress(connection)
    except RefusedError as e:
        if not str(e).startswith("CLUSTER_AUTHORIZATION_FAILED"):
            raise
        return {}


def _kinds(options: argparse.Namespace) -> list[Callable[[Described], bool]]:
    """Which partitions are asked for; all if there are none. Of several kinds one is enough (TopicCommand.DescribeOptions)."""
    asked: dict[str, Callable[[Described], bool]] = {
        "under_replicated_partitions": lambda each: len(each.partition.isr_nodes) < each.replication_factor,
        "unavailable_partitions": lambda each: each.partition.leader_id < 0,
        "under_min_isr_partitions": lambda each: each.partition.leader_id < 0 or len(each.partition.isr_nodes) < each.isr_min,
        "at_min_isr_partitions": lambda each: len(each.partition.isr_nodes) == each.isr_min,
    }
    return [is_one for name, is_one in asked.items() if getattr(options, name)]


def _line(name: str, described: Described) -> str:
    def joined(nodes: Iterable[int] | None) -> str:
        return "N/A" if nodes is None else ",".join(map(str, nodes))

    partition, move = described.partition, described.move
    facts = {
        "Topic": name,
        "Partition": partition.partition_index,
        "Leader": "none" if partition.leader_id < 0 else partition.leader_id,
        "Replicas": joined(partition.replica_nodes),
        "Isr": joined(partition.isr_nodes),
        **({} if move is None else {"Adding Replicas": joined(move.adding), "Removing Replicas": joined(move.removing)}),
        "Elr": joined(getattr(partition, "eligible_leader_replicas", None)),
        "LastKnownElr": joined(getattr(partition, "last_known_elr", None)),
    }
    return "\t" + "\t".join(f"{key}: {value}" for key, value in facts.items())


def _topic_id(options: argparse.Namespace) -> bytes | None:
    """None without --topic-id, and for the id that means none. Raises CommandError."""
    if options.topic_id is None:
        return None
    try:
        topic_id = uuid_from_text(options.topic_id)
    except (ValueError, DecodeError) as e:
        raise CommandError(str(e)) from e
    return None if topic_id == ZERO_UUID else topic_id


def _named(connection: Connection, options: argparse.Namespace, topic_id: bytes) -> list[str]:
    """The name of the topic with this id. Raises CommandError if it is not there and has to be."""
    topics = connection.wire().request(MetadataRequest(topics=None)).topics
    names = [topic.name for topic in topics if topic.topic_id == topic_id and not (options.exclude_internal and topic.is_internal)]
    if not names and not options.if_exists:
        raise CommandError(f"TopicId '{uuid_to_text(topic_id)}' does not exist as expected")
    return names


def _partitions(connection: Connection, names: list[str], page_size: int, *, is_by_id: bool) -> list[Any]:
    """Topics with their partitions in order: by DescribeTopicPartitions, in pages, or Metadata where a broker lacks that (KIP-966), and for
    a topic by its id, as Kafka's tool."""
    wire = connection.wire()
    if not names:
        return []
    if is_by_id or not wire.serves(DescribeTopicPartitionsRequest):
        topics = wire.request(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])).topics
        for topic in topics:
            topic.partitions.sort(key=lambda each: each.partition_index)
        return sorted(topics, key=lambda topic: str(topic.name))
    found: dict[str, Any] = {}
    cursor = None
    while True:
        asked = [TopicRequest(name=name) for name in names]
        answer = wire.request(DescribeTopicPartitionsRequest(topics=asked, response_partition_limit=page_size, cursor=cursor))
        for topic in answer.topics:
            if topic.name in found:
                found[topic.name].partitions += topic.partitions
            else:
                found[topic.name] = topic
        if answer.next_cursor is None:
            return [found[name] for name in sorted(found)]
        cursor = Cursor(topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index)
        names = [name for name in names if name >= cursor.topic_name]


def _create(connection: Connection, options: argparse.Namespace) -> None:
    (name,) = options.topic[-1:]
    if "." in name or "_" in name:
        print(COLLISION)
    config = dict(_config(word) for word in options.config)
    if options.replica_assignment:
        assignment = [[int(broker) for broker in each.split(":")] for each in options.replica_assignment.split(",")]
        new = NewTopic(name, num_partitions=len(assignment), replica_assignment=assignment, config=config)
    else:
        new = NewTopic(name, num_partitions=options.partitions or -1, replication_factor=options.replication_factor or -1, config=config)
    if options.if_not_exists and name in connection.metadata().topics:
        return
    try:
        connection.results(connection.admin.create_topics([new], request_timeout=connection.timeout_s))
    except CommandError as e:
        if not (options.if_not_exists and str(e).startswith("TOPIC_ALREADY_EXISTS")):
            raise
        return
    wait_until_seen(connection, lambda topics: name in topics)
    print(f"Created topic {name}.")


def _alter(connection: Connection, options: argparse.Namespace) -> None:
    if options.partitions is None:
        raise CommandError("--alter changes the number of --partitions; kafka-configs changes configurations")
    names = _chosen(connection, options, must_exist=not options.if_exists)
    new = [NewPartitions(name, options.partitions) for name in names]
    if new:
        connection.results(connection.admin.create_partitions(new, request_timeout=connection.timeout_s))


def _delete(connection: Connection, options: argparse.Namespace) -> None:
    names = _chosen(connection, options, must_exist=not options.if_exists)
    if names:
        connection.results(connection.admin.delete_topics(names, request_timeout=connection.timeout_s))


ACTION: dict[str, Callable[[Connection, argparse.Namespace], None]] = {
    "list": _list,
    "describe": _describe,
    "create": _create,
    "alter": _alter,
    "delete": _delete,
}


def _chosen(connection: Connection, options: argparse.Namespace, *, must_exist: bool) -> list[str]:
    """The topics that --topic names, sorted. Raises CommandError if there is none and one has to be."""
    names = sorted(connection.metadata().topics)
    if options.topic:
        text = options.topic[-1]
        pattern = include_list(text)
        names = [name for name in names if pattern.fullmatch(name)]
        if must_exist and not names:
            raise CommandError(f"Topic '{text}' does not exist as expected")
    return [name for name in names if not (options.exclude_internal and name in INTERNAL)]


def _config(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise CommandError('requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".')
    return key, value


def _cause(error: CommandError) -> str:
    """The broker's words, without the error's name before them."""
    return re.sub(r"^[A-Z_]+: ", "", str(error))
