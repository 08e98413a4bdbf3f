"""Java's consumer with group.protocol=consumer (KIP-848): sharing, dying, static members, expressions, commits, and the way from the
classic protocol and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.clients.java_members import CLASSIC, JAVA_STRATEGY, LEAVE, JavaConsumers, JavaMember
from tests.clients.members import poll_until, share_all
from tests.clients.test_groups import COUNT, PARTITIONS, fill
from tests.clients.topics import create_topic
from tests.support.json_program import ProgramError
from tests.support.messages import Stored
from tests.support.process import ServerProcess

SHORT_SESSION = {"group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": "3000"}


@pytest.fixture(scope="module")
def consumers() -> Iterator[JavaConsumers]:
    program = JavaConsumers()
    yield program
    program.close()


def values(records: list[Stored]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


def settle(*members: JavaMember) -> list[Stored]:
    """The members have all partitions between them; what they read meanwhile."""
    return poll_until(members, lambda _: share_all(members, PARTITIONS))


def read(count: int, *members: JavaMember) -> list[Stored]:
    return poll_until(members, lambda records: len(records) >= count)


def test_members_take_over_what_one_that_left_or_was_killed_had(
    make_server: Callable[[dict[str, str]], ServerProcess], topic_name: str, consumers: JavaConsumers
) -> None:
    server = make_server(SHORT_SESSION)
    create_topic(server, topic_name, partitions=PARTITIONS)
    mortal = JavaConsumers()
    first, second = consumers.join(server, [topic_name], "g"), mortal.join(server, [topic_name], "g")
    settle(first, second)
    third = consumers.join(server, [topic_name], "g")
    settle(first, second, third)
    fill(server, topic_name)
    records = read(COUNT, first, second, third)
    for member in (first, second, third):
        member.commit()

    third.close()
    settle(first, second)
    mortal.kill()
    settle(first)
    fill(server, topic_name, first=COUNT)
    records += read(COUNT, first)

    assert values(records) == list(range(2 * COUNT))
    assert not any(event.startswith("lost") for event in first.events)
    first.close()


def test_member_keeps_what_it_does_not_have_to_give_up(server: ServerProcess, topic_name: str, consumers: JavaConsumers) -> None:
    """Of its partitions those that stay are never revoked, as an eager assignor would."""
    create_topic(server, topic_name, partitions=PARTITIONS)
    first = consumers.join(server, [topic_name], topic_name)
    settle(first)

    second = consumers.join(server, [topic_name], topic_name)
    settle(first, second)

    (revoked,) = (event.split()[1:] for event in first.events if event.startswith("revoked"))
    assert set(revoked) == {f"{topic}-{partition}" for topic, partition in second.owned}
    second.close()
    first.close()


def test_commits_are_where_the_next_member_begins(server: ServerProcess, topic_name: str, consumers: JavaConsumers) -> None:
    create_topic(server, topic_name, partitions=PARTITIONS)
    fill(server, topic_name)
    member = consumers.join(server, [topic_name], topic_name)
    read(COUNT, member)
    member.commit_async()
    member.seek(topic_name, 1, 10)
    again = read(COUNT // PARTITIONS - 10, member)
    member.seek(topic_name, 2, 20)
    member.commit()
    member.close()

    member = consumers.join(server, [topic_name], topic_name)
    records = read(COUNT // PARTITIONS - 20, member)
    member.close()

    assert [(record.partition, record.offset) for record in again] == [(1, offset) for offset in range(10, COUNT // PARTITIONS)]
    assert [(record.partition, record.offset) for record in records] == [(2, offset) for offset in range(20, COUNT // PARTITIONS)]


def test_member_that_reads_other_topics_gives_up_the_first_ones(server: ServerProcess, topic_name: str, consumers: JavaConsumers) -> None:
    topics = [f"{topic_name}-{letter}" for letter in "ab"]
    for topic in topics:
        create_topic(server, topic, partitions=2)
    member = consumers.join(server, topics[:1], topic_name)
    poll_until([member], lambda _: member.owned == {(topics[0], 0), (topics[0], 1)})

    member.subscribe(topics)
    poll_until([member], lambda _: len(member.owned) == 4)
    member.subscribe(topics[1:])
    poll_until([member], lambda _: member.owned == {(topics[1], 0), (topics[1], 1)})

    member.close()


def test_expression_matches_topics_that_come_later(server: ServerProcess, topic_name: str, consumers: JavaConsumers) -> None:
    create_topic(server, f"{topic_name}-a", partitions=2)
    create_topic(server, f"{topic_name}-other", partitions=1)
    member = consumers.join(server, f"{topic_name}-[a-c]", topic_name)
    poll_until([member], lambda _: member.owned == {(f"{topic_name}-a", 0), (f"{topic_name}-a", 1)})

    create_topic(server, f"{topic_name}-b")
    poll_until([member], lambda _: (f"{topic_name}-b", 0) in member.owned)

    assert len(member.owned) == 3
    member.close()


def test_expression_that_is_none_is_refused(server: ServerProcess, topic_name: str, consumers: JavaConsumers) -> None:
    member = consumers.join(server, "a(", topic_name)

    with pytest.raises(ProgramError, match="InvalidRegularExpression"):
        read(1, member)

    member.close()


def test_static_member_that_is_back_in_time_has_what_it_had(server: ServerProcess, topic_name: str, consumers: JavaConsumers) -> None:
    create_topic(server, topic_name, partitions=PARTITIONS)
    first = consumers.join(server, [topic_name], topic_name, group_instance_id="first")
    second = consumers.join(server, [topic_name], topic_name, group_instance_id="second")
    settle(first, second)
    owned, epoch, member_id = second.owned, first.epoch(), second.member_id()

    second.close()  # which only says that it is away
    first.poll()
    second = consumers.join(server, [topic_name], topic_name, group_instance_id="second")
    settle(first, second)

    assert second.owned == owned
    assert second.member_id() != member_id
    assert (first.epoch(), second.epoch()) == (epoch, epoch)
    second.close(LEAVE)
    settle(first)
    first.close()


def test_second_member_of_an_instance_id_is_refused(server: ServerProcess, topic_name: str, consumers: JavaConsumers) -> None:
    create_topic(server, topic_name, partitions=PARTITIONS)
    first = consumers.join(server, [topic_name], topic_name, group_instance_id="only")
    settle(first)
    second = consumers.join(server, [topic_name], topic_name, group_instance_id="only")

    with pytest.raises(ProgramError, match="UnreleasedInstanceId"):
        read(1, second)

    settle(first)
    second.close()
    first.close()


@pytest.mark.parametrize("strategy", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_group_goes_from_the_classic_to_the_consumer_protocol_and_back(
    server: ServerProcess, topic_name: str, consumers: JavaConsumers, strategy: str
) -> None:
    """A fleet of two is restarted one by one with the other group.protocol, and back; each record is read once."""
    create_topic(server, topic_name, partitions=PARTITIONS)
    config = {"partition_assignment_strategy": JAVA_STRATEGY.format(strategy)}
    protocols = [CLASSIC, CLASSIC, "consumer", "consumer", CLASSIC, CLASSIC]
    members: list[JavaMember] = []
    records: list[Stored] = []

    for step, protocol in enumerate(protocols):
        if len(members) == 2:
            members.pop(0).close()
            records += settle(*members)
        members.append(consumers.join(server, [topic_name], topic_name, protocol, **(config if protocol == CLASSIC else {})))
        records += settle(*members)
        fill(server, topic_name, first=step * COUNT)
        records += read(COUNT, *members)
        for member in members:
            member.commit()

    assert values(records) == list(range(len(protocols) * COUNT))
    for member in members:
        member.close()
