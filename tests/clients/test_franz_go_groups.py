"""Groups of franz-go's clients, which speak the consumer protocol (KIP-848), alone and beside librdkafka's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.clients.members import POLL_MS, ConfluentConsumerProtocolMember, ConfluentMember, Member, poll_until, share_all
from tests.clients.test_groups import COUNT, PARTITIONS, fill
from tests.clients.topics import create_topic
from tests.support.go_programs import go_program
from tests.support.json_program import JsonProgram, to_bytes
from tests.support.messages import Stored
from tests.support.process import ServerProcess


class FranzGoMember(Member):
    """One process for each member."""

    def __init__(self, server: ServerProcess, topic: str, group: str) -> None:
        self.program = JsonProgram([str(go_program("franzgo")), server.bootstrap, group, topic])
        self.epoch = 0
        self._topic = topic
        self._owned: set[int] = set()

    def poll(self) -> list[Stored]:
        answer = self.program.ask({"op": "poll", "timeout_ms": POLL_MS})
        self._owned = set(answer.get("assignment", {}).get(self._topic, ()))
        self.epoch = answer["epoch"]
        return [
            Stored(record["partition"], record["offset"], record["timestamp"], to_bytes(record["key"]), to_bytes(record["value"]))
            for record in answer.get("records", ())
        ]

    def assignment(self) -> set[int]:
        return self._owned

    def commit(self) -> None:
        self.program.ask({"op": "commit"})

    def close(self) -> None:
        self.program.close()


Join = Callable[[ServerProcess, str, str], FranzGoMember]


@pytest.fixture
def join() -> Iterator[Join]:
    """Makes members, whose processes end with the test."""
    with ExitStack() as ends:

        def make(server: ServerProcess, topic: str, group: str) -> FranzGoMember:
            member = FranzGoMember(server, topic, group)
            ends.callback(member.program.kill)
            return member

        yield make


def values(records: list[Stored]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


def test_members_share_commit_and_take_over(server: ServerProcess, topic_name: str, join: Join) -> None:
    create_topic(server, topic_name, partitions=PARTITIONS)
    fill(server, topic_name)
    first = join(server, topic_name, topic_name)
    records = poll_until([first], lambda read: len(read) >= COUNT)
    first.commit()

    second = join(server, topic_name, topic_name)
    records += poll_until([first, second], lambda _: share_all([first, second], PARTITIONS))
    fill(server, topic_name, first=COUNT)
    records += poll_until([first, second], lambda read: len(read) >= COUNT)
    for member in (first, second):
        member.commit()
    first.close()
    records += poll_until([second], lambda _: share_all([second], PARTITIONS))
    fill(server, topic_name, first=2 * COUNT)
    records += poll_until([second], lambda read: len(read) >= COUNT)
    second.close()

    assert values(records) == list(range(3 * COUNT))


def test_members_of_two_libraries_and_both_protocols_share_one_group(server: ServerProcess, topic_name: str, join: Join) -> None:
    create_topic(server, topic_name, partitions=PARTITIONS)
    members: list[Member] = [
        ConfluentMember(server, topic_name, topic_name),
        ConfluentConsumerProtocolMember(server, topic_name, topic_name),
        join(server, topic_name, topic_name),
    ]

    poll_until(members, lambda _: share_all(members, PARTITIONS))
    fill(server, topic_name)
    records = poll_until(members, lambda read: len(read) >= COUNT)
    for member in members:
        member.commit()
        member.close()

    assert values(records) == list(range(COUNT))


def test_members_take_over_what_one_that_was_killed_had(
    make_server: Callable[[dict[str, str]], ServerProcess], topic_name: str, join: Join
) -> None:
    server = make_server({"group.consumer.min.session.timeout.ms": "1000", "group.consumer.session.timeout.ms": "3000"})
    create_topic(server, topic_name, partitions=PARTITIONS)
    first, second = (join(server, topic_name, topic_name) for _ in range(2))
    poll_until([first, second], lambda _: share_all([first, second], PARTITIONS))

    first.program.kill()
    poll_until([second], lambda _: share_all([second], PARTITIONS))

    second.close()
