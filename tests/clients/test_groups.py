"""Consumer groups of each Python client: sharing, taking over, committing, and resuming after the server was killed."""

from __future__ import annotations

import pytest

from tests.clients.adapters import ConfluentKafka
from tests.clients.members import CLASSIC_MEMBERS, MEMBERS, ConfluentConsumerProtocolMember, poll_until, share_all
from tests.clients.topics import create_topic
from tests.support.messages import Message
from tests.support.process import ServerProcess

PARTITIONS = 4
COUNT = 200


def fill(server: ServerProcess, topic: str, first: int = 0, count: int = COUNT) -> None:
    messages = [Message(number % PARTITIONS, None, b"%d" % number) for number in range(first, first + count)]
    ConfluentKafka().produce(server, topic, messages)


@pytest.mark.parametrize("name", MEMBERS)
def test_second_member_takes_its_share_and_gives_it_back(server: ServerProcess, topic_name: str, name: str) -> None:
    create_topic(server, topic_name, partitions=PARTITIONS)
    first = MEMBERS[name](server, topic_name, topic_name)
    poll_until([first], lambda _: share_all([first], PARTITIONS))

    second = MEMBERS[name](server, topic_name, topic_name)
    poll_until([first, second], lambda _: share_all([first, second], PARTITIONS))
    second.close()
    poll_until([first], lambda _: share_all([first], PARTITIONS))

    first.close()


@pytest.mark.parametrize("name", MEMBERS)
def test_group_reads_each_record_once_over_a_rebalance(server: ServerProcess, topic_name: str, name: str) -> None:
    create_topic(server, topic_name, partitions=PARTITIONS)
    fill(server, topic_name)
    first = MEMBERS[name](server, topic_name, topic_name)
    records = poll_until([first], lambda read: len(read) >= COUNT)
    first.commit()

    second = MEMBERS[name](server, topic_name, topic_name)
    records += poll_until([first, second], lambda _: share_all([first, second], PARTITIONS))
    fill(server, topic_name, first=COUNT)
    records += poll_until([first, second], lambda read: len(read) >= COUNT)
    for member in (first, second):
        member.close()

    assert sorted(int(record.value or b"") for record in records) == list(range(2 * COUNT))


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.parametrize("hard", [False, True], ids=["stopped", "killed"])
def test_group_resumes_at_its_commit_after_the_server_was(own_server: ServerProcess, topic_name: str, name: str, hard: bool) -> None:
    create_topic(own_server, topic_name, partitions=PARTITIONS)
    fill(own_server, topic_name)
    member = MEMBERS[name](own_server, topic_name, topic_name)
    poll_until([member], lambda read: len(read) >= COUNT)
    member.commit()
    member.close()

    own_server.restart(hard=hard)
    fill(own_server, topic_name, first=COUNT)
    member = MEMBERS[name](own_server, topic_name, topic_name)
    records = poll_until([member], lambda read: len(read) >= COUNT)
    member.close()

    assert sorted(int(record.value or b"") for record in records) == list(range(COUNT, 2 * COUNT))


def test_members_of_three_libraries_share_one_group(server: ServerProcess, topic_name: str) -> None:
    create_topic(server, topic_name, partitions=PARTITIONS)
    fill(server, topic_name)
    members = [join(server, topic_name, topic_name) for join in CLASSIC_MEMBERS.values()]

    poll_until(members, lambda _: share_all(members, PARTITIONS))
    fill(server, topic_name, first=COUNT)
    expected = {b"%d" % number for number in range(COUNT, 2 * COUNT)}
    poll_until(members, lambda read: {record.value for record in read} >= expected)

    for member in members:
        member.close()


@pytest.mark.parametrize("name", CLASSIC_MEMBERS)
def test_group_goes_from_the_classic_to_the_consumer_protocol_and_back(server: ServerProcess, topic_name: str, name: str) -> None:
    """As a fleet does that is restarted one by one with another group.protocol."""
    create_topic(server, topic_name, partitions=PARTITIONS)
    classic = CLASSIC_MEMBERS[name](server, topic_name, topic_name)
    poll_until([classic], lambda _: share_all([classic], PARTITIONS))

    consumer = ConfluentConsumerProtocolMember(server, topic_name, topic_name)
    poll_until([classic, consumer], lambda _: share_all([classic, consumer], PARTITIONS))
    classic.close()
    poll_until([consumer], lambda _: share_all([consumer], PARTITIONS))

    fill(server, topic_name)
    records = poll_until([consumer], lambda read: len(read) >= COUNT)
    consumer.commit()
    classic = CLASSIC_MEMBERS[name](server, topic_name, topic_name)
    records += poll_until([classic, consumer], lambda _: share_all([classic, consumer], PARTITIONS))
    consumer.close()
    records += poll_until([classic], lambda _: share_all([classic], PARTITIONS))
    fill(server, topic_name, first=COUNT)
    records += poll_until([classic], lambda read: len(read) >= COUNT)
    classic.close()

    assert sorted(int(record.value or b"") for record in records) == list(range(2 * COUNT))


def test_group_reads_topics_that_a_regular_expression_matches(server: ServerProcess, topic_name: str) -> None:
    create_topic(server, topic_name, partitions=PARTITIONS)
    member = ConfluentConsumerProtocolMember(server, f"^{topic_name[:-1]}.$", topic_name)

    poll_until([member], lambda _: share_all([member], PARTITIONS))

    member.close()
