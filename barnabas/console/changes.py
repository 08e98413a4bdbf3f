"""What the console changes in a cluster, as the commands of the same names do it. All raise CommandError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewTopic

from barnabas.cli.cluster_facts import Partition, partitions_of, topics_of
from barnabas.cli.config.resources import DELETE, SET, Change, alter
from barnabas.cli.connection import Connection, attempt, from_kafka, make
from barnabas.cli.errors import CommandError, NoBrokerError, RefusedError
from barnabas.cli.group.facts import describe_groups, is_missing, refuse_members
from barnabas.cli.group.offsets import alter_offsets, committed
from barnabas.cli.group.reset_rules import rule_of_position, targets
from barnabas.cli.topic_facts import check_topic, wait_until_seen

ANY_PARTITION = -1


class Step(NamedTuple):
    """One partition of a reset: `before` is None if the group has no offset there."""

    topic: str
    partition: int
    before: int | None
    after: int


def plan_reset(connection: Connection, group: str, topic: str, to: str) -> list[Step]:
    """Where the group would go on: in all partitions of a topic, or, with "", in those with committed offsets."""
    current = _resettable(connection, group)
    chosen: list[Partition] = list(current)
    if topic:
        there = topics_of(connection)
        if topic not in there:
            raise RefusedError(f"there is no topic {topic}")
        chosen = partitions_of({topic: there[topic]})
    new = targets(connection, rule_of_position(to), dict.fromkeys(chosen), current)
    if not new:
        raise RefusedError("there is nothing to reset: the group has no offsets; name a topic")
    return [Step(*each, current.get(each), offset) for each, offset in sorted(new.items())]


def reset(connection: Connection, group: str, plan: list[Step]) -> None:
    """What was previewed and nothing else: refused if the group has gone on meanwhile."""
    current = _resettable(connection, group)
    if any(current.get((step.topic, step.partition)) != step.before for step in plan):
        raise RefusedError("the group's offsets have changed since the preview; look at a new one")
    alter_offsets(connection, group, {(step.topic, step.partition): step.after for step in plan})


def create_topic(connection: Connection, name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
    new = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=dict(settings))
    connection.results(connection.admin.create_topics([new], request_timeout=connection.timeout_s))
    wait_until_seen(connection, lambda topics: name in topics)


def alter_config(connection: Connection, topic: str, name: str, value: str | None) -> None:
    """`value` is None to go back to the default."""
    alter(connection, "topic", topic, [Change(name, DELETE if value is None else SET, value)], dry_run=False)


def produce(
    connection: Connection, topic: str, partition: int | None, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]]
) -> tuple[int, int]:
    """Partition and offset of the record. The topic is not made if it is not there."""
    check_topic(connection, topic)
    heard: list[tuple[KafkaError | None, Any]] = []
    limit = {"enable.idempotence": True, "delivery.timeout.ms": int(connection.timeout_s * 1_000)}
    producer: Producer = make(Producer, connection.config(limit))

    def send() -> None:
        producer.produce(
            topic,
            value=value,
            key=key,
            partition=ANY_PARTITION if partition is None else partition,
            headers=list(headers),
            on_delivery=lambda error, message: heard.append((error, message)),
        )

    attempt(send)
    producer.flush(connection.timeout_s + 1)
    connection.check_let_in()
    if not heard:
        raise NoBrokerError("no broker has answered in time: whether the record was written is not known")
    error, message = heard[0]
    if error is not None:
        raise from_kafka(KafkaException(error))
    return message.partition(), message.offset()


def _resettable(connection: Connection, group: str) -> dict[Partition, int]:
    """The committed offsets of a group without members; none of a group that is not there."""
    (described,) = describe_groups(connection, [group]).values()
    if isinstance(described, CommandError) and not is_missing(described):
        raise described
    refuse_members(group, described, "its offsets are reset")
    (own,) = committed(connection, [group]).values()
    if isinstance(own, CommandError):
        if is_missing(own):
            return {}
        raise own
    return own
