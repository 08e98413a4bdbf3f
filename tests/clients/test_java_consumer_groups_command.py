"""kafka-consumer-groups against a KIP-848 group: what it shows, and what it may change while the group has members and when it has none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.members import ConfluentConsumerProtocolMember, poll_until, share_all
from tests.clients.test_groups import COUNT, PARTITIONS, fill
from tests.clients.topics import create_topic, eventually
from tests.support.java_host import JavaHost
from tests.support.process import ServerProcess

EACH = COUNT // PARTITIONS


class Command:
    """kafka-consumer-groups for one group."""

    def __init__(self, java_host: JavaHost, server: ServerProcess, group: str) -> None:
        self._java_host = java_host
        self._bootstrap = ("--bootstrap-server", server.bootstrap)
        self._group = group

    def run(self, *words: str) -> str:
        result = self._java_host.tool(
            "consumer.group.ConsumerGroupCommand", *self._bootstrap, "--group", self._group, *words, expected_status=None
        )
        return result.stdout + result.stderr

    def table(self, *words: str) -> list[dict[str, str]]:
        """The rows that `--describe` prints, by the names of their columns."""
        lines = [line.split() for line in self.run("--describe", *words).splitlines() if line.strip()]
        header = next(index for index, line in enumerate(lines) if line[0] == "GROUP")
        return [dict(zip(lines[header], line, strict=False)) for line in lines[header + 1 :] if line[0] == self._group]

    def listed(self) -> list[list[str]]:
        printed = self._java_host.tool("consumer.group.ConsumerGroupCommand", *self._bootstrap, "--list", "--type", "--state").lines
        return [line.split() for line in printed]


@pytest.fixture
def command(java_host: JavaHost, server: ServerProcess, topic_name: str) -> Command:
    return Command(java_host, server, topic_name)


@pytest.fixture
def member(server: ServerProcess, topic_name: str) -> Iterator[ConfluentConsumerProtocolMember]:
    """Has read and committed all that there is, and left some more."""
    create_topic(server, topic_name, partitions=PARTITIONS)
    fill(server, topic_name)
    member = ConfluentConsumerProtocolMember(server, topic_name, topic_name)
    poll_until([member], lambda records: share_all([member], PARTITIONS) and len(records) >= COUNT)
    member.commit()
    yield member
    member.close()


def test_shows_the_lag_the_members_and_the_state(
    server: ServerProcess, topic_name: str, command: Command, member: ConfluentConsumerProtocolMember
) -> None:
    second = ConfluentConsumerProtocolMember(server, topic_name, topic_name)
    poll_until([member, second], lambda _: share_all([member, second], PARTITIONS))
    fill(server, topic_name, first=COUNT)
    eventually(lambda: command.table("--state")[0]["STATE"] == "Stable")

    offsets = command.table()
    members = command.table("--members", "--verbose")
    (state,) = command.table("--state", "--verbose")
    listed = command.listed()
    second.close()

    assert [(row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in offsets] == [(str(EACH), str(2 * EACH), str(EACH))] * 4
    assert len({row["CONSUMER-ID"] for row in offsets}) == 2
    assert [row["#PARTITIONS"] for row in members] == ["2", "2"]
    assert all(row["CURRENT-ASSIGNMENT"] == row["TARGET-ASSIGNMENT"] for row in members)
    assert all(row["CURRENT-EPOCH"] == row["TARGET-EPOCH"] == state["TARGET-ASSIGNMENT-EPOCH"] for row in members)
    assert (state["ASSIGNMENT-STRATEGY"], state["STATE"], state["#MEMBERS"]) == ("uniform", "Stable", "2")
    assert state["GROUP-EPOCH"] == state["TARGET-ASSIGNMENT-EPOCH"]
    assert [topic_name, "Consumer", "Stable"] in listed


def test_group_with_members_keeps_its_offsets(topic_name: str, command: Command, member: ConfluentConsumerProtocolMember) -> None:
    reset = command.run("--reset-offsets", "--to-earliest", "--execute", "--topic", topic_name)
    deleted_offsets = command.run("--delete-offsets", "--topic", topic_name)
    deleted = command.run("--delete")

    assert "Assignments can only be reset if the group" in reset
    assert "GroupSubscribedToTopicException" in deleted_offsets
    assert "GroupNotEmptyException" in deleted
    assert [row["CURRENT-OFFSET"] for row in command.table()] == [str(EACH)] * PARTITIONS


def test_group_without_members_is_reset_and_deleted(
    server: ServerProcess, topic_name: str, command: Command, member: ConfluentConsumerProtocolMember
) -> None:
    member.close()
    eventually(lambda: [topic_name, "Consumer", "Empty"] in command.listed())
    reset = command.run("--reset-offsets", "--to-offset", "7", "--execute", "--topic", f"{topic_name}:1")
    reader = ConfluentConsumerProtocolMember(server, topic_name, topic_name)
    records = poll_until([reader], lambda read: len(read) >= EACH - 7)
    reader.close()
    eventually(lambda: [topic_name, "Consumer", "Empty"] in command.listed())
    deleted_offsets = command.run("--delete-offsets", "--topic", f"{topic_name}:2")
    left = command.table()
    deleted = command.run("--delete")

    assert "7" in reset
    assert {(record.partition, record.offset) for record in records} == {(1, offset) for offset in range(7, EACH)}
    assert "Successful" in deleted_offsets
    assert sorted(row["PARTITION"] for row in left) == ["0", "1", "3"]
    assert f"Deletion of requested consumer groups ('{topic_name}') was successful." in deleted
    assert not any(line[0] == topic_name for line in command.listed())
