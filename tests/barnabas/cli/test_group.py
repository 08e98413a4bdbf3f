"""`barnabas group` at Barnabas and at Apache Kafka."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.barnabas.cli.conftest import Command, fill
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

JOIN_S = 60
T0_MS = 1_700_000_000_000


@pytest.fixture
def topic(command: Command, topic_name: str) -> str:
    """Two partitions with offsets 0 to 3: a record a second from T0_MS on."""
    command.done("topic", "create", topic_name, "-p", "2", "-c", "retention.ms=-1")
    lines = [f'{{"value": "{number}", "partition": {number % 2}, "timestamp": {T0_MS + number * 1_000}}}' for number in range(8)]
    command.done("produce", topic_name, "--json", stdin="\n".join(lines))
    return topic_name


@pytest.fixture
def group(command: Command, topic: str) -> str:
    """Has committed offset 1 of partition 0 and 4, the end, of partition 1."""
    commit(command, f"of-{topic}", topic, {0: 1, 1: 4})
    return f"of-{topic}"


@pytest.fixture
def member(command: Command, topic: str, group: str) -> Iterator[Consumer]:
    """A static member, which has both partitions."""
    consumer = Consumer(
        {"bootstrap.servers": command.bootstrap, "group.id": group, "client.id": "reader", "group.instance.id": "one"}
        | {"enable.auto.commit": False, "auto.offset.reset": "latest"}
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + JOIN_S
    while len(consumer.assignment()) < 2:
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    yield consumer
    consumer.close()


def commit(command: Command, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": command.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, *each) for each in offsets.items()], asynchronous=False)
    consumer.close()


def committed(command: Command, group: str) -> dict[int, int]:
    (described,) = command.done("group", "describe", group, "-o", "json").data
    return {each["partition"]: each["committed_offset"] for each in described["partitions"]}


def test_list_has_state_and_total_lag(command: Command, group: str, topic: str) -> None:
    (row,) = command.done("group", "list", group, "-o", "json").data

    coordinator = row.pop("coordinator")
    assert row == {
        "group": group, "state": "Empty", "type": "classic", "protocol": None, "members": 0, "lag": 3, "topics": [topic],
    }  # fmt: skip
    assert isinstance(coordinator, int)
    assert f"{group} " in command.done("get", "consumer-groups", "-o", "wide").out


def test_describe_has_lag_in_records_and_in_time(command: Command, group: str) -> None:
    before_ms = time.time_ns() // 1_000_000

    (described,) = command.done("group", "describe", group, "-o", "json").data

    behind, done = described["partitions"]
    assert (behind["committed_offset"], behind["end_offset"], behind["lag"], done["lag"], done["lag_ms"]) == (1, 4, 3, 0, 0)
    assert before_ms - (T0_MS + 2_000) <= behind["lag_ms"] <= time.time_ns() // 1_000_000 - (T0_MS + 2_000)
    assert (described["lag"], described["members"], behind["client_id"]) == (3, 0, None)
    assert f"group {group}: Empty, classic, 0 members, total lag 3" in command.done("describe", "group", group).out


def test_time_of_a_record_that_is_gone_is_not_known(command: Command, group: str, topic: str) -> None:
    command.done("topic", "trim", topic, "--before", "2", "--yes")

    (described,) = command.done("group", "describe", group, "-o", "json").data

    assert (described["partitions"][0]["lag"], described["partitions"][0]["lag_ms"]) == (3, None)
    assert described["partitions"][1]["lag_ms"] == 0


def test_members_are_shown_and_keep_the_group_from_being_changed(command: Command, group: str, topic: str, member: Consumer) -> None:
    (described,) = command.done("group", "describe", group, "-o", "json").data
    assert (described["state"], described["members"], described["idle_members"]) == ("Stable", 1, [])
    assert {(each["client_id"], each["instance_id"]) for each in described["partitions"]} == {("reader", "one")}

    for words in (("reset", group, "--to", "start"), ("delete", group)):
        refused = command("group", *words, "--yes")
        assert refused.code == 1 and "reader (127.0.0.1)" in refused.err
    refused = command("group", "delete-offsets", group, "--topic", topic, "--yes")
    assert refused.code == 1 and "GROUP_SUBSCRIBED_TO_TOPIC" in refused.err
    assert command("group", "remove-member", group, "--instance", "two", "--yes").code == 1
    removed = command.done("group", "remove-member", group, "-i", "one", "--yes", "-o", "json")
    assert removed.data == [{"member": "one", "outcome": "removed", "is_done": True}]
    assert command.done("group", "list", group, "-o", "json").data[0]["members"] == 0


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        (("--to-earliest",), {0: 0, 1: 0}), (("--to-latest",), {0: 4, 1: 4}), (("--to-current",), {0: 1, 1: 4}),
        (("--to-offset", "2"), {0: 2, 1: 2}), (("--to-offset", "99"), {0: 4, 1: 4}), (("--shift-by", "-1"), {0: 0, 1: 3}),
        (("--to", "+2"), {0: 3, 1: 4}), (("--to", "start", "--topic", "TOPIC:1"), {0: 1, 1: 0}),
        (("--to-datetime", "2023-11-14T22:13:23"), {0: 2, 1: 1}), (("--to", "@1700000004"), {0: 2, 1: 2}),
        (("--by-duration", "PT1H"), {0: 4, 1: 4}), (("--by-duration", "PT1S", "--topic", "TOPIC:0"), {0: 4, 1: 4}),
        (("--to-group", "OTHER"), {0: 2, 1: 4}), (("--from-file", "FILE"), {0: 3, 1: 4}),
    ],
)  # fmt: skip
def test_reset_by_each_rule(
    command: Command, group: str, topic: str, tmp_path: Path, words: tuple[str, ...], offsets: dict[int, int]
) -> None:
    if "--to-group" in words:
        commit(command, f"other-{group}", topic, {0: 2})
    path = tmp_path / "offsets.csv"
    path.write_text(f'"{topic}",0,3\nsomeone-else,{topic},1,2\n')
    named = {"OTHER": f"other-{group}", "FILE": str(path), "TOPIC:1": f"{topic}:1", "TOPIC:0": f"{topic}:0"}

    command.done("group", "reset", group, *(named.get(word, word) for word in words), "--yes")

    assert committed(command, group) == offsets


def test_reset_shows_its_plan_first(command: Command, group: str, topic: str) -> None:
    shown = command.done("group", "seek", group, "--to", "start", "--dry-run", "-o", "json")

    assert [(each["partition"], each["committed_offset"], each["new_offset"]) for each in shown.data] == [(0, 1, 0), (1, 4, 0)]
    assert command("group", "reset", group, "--to", "start").code == 1
    assert committed(command, group) == {0: 1, 1: 4}


def test_reset_makes_a_group_for_topics_that_are_named(command: Command, topic: str) -> None:
    name = f"new-{topic}"

    assert command("group", "reset", name, "--to", "end", "--yes").code == 1
    assert command("group", "reset", name, "--shift-by", "1", "--topic", topic, "--yes").code == 1
    command.done("group", "reset", name, "--to", "end", "--topic", topic, "--execute")

    assert committed(command, name) == {0: 4, 1: 4}


def test_offsets_and_groups_are_deleted(command: Command, group: str, topic: str) -> None:
    assert command("group", "delete-offsets", group, "--topic", "another", "--yes").code == 1
    deleted = command.done("group", "delete-offsets", group, "--topic", f"{topic}:1", "--yes", "-o", "json")
    assert [each["partition"] for each in deleted.data] == [f"{topic}-1"] and committed(command, group) == {0: 1}

    assert command("group", "delete", group).code == 1
    command.done("delete", "group", group, "--yes")

    assert command.done("group", "list", group, "-o", "json").data == []
    assert command("group", "describe", group).code == 1 and command("group", "delete", group, "--yes").code == 1


def test_watch_goes_on_until_it_is_interrupted(command: Command, group: str, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        fill(command, topic_name, [(0, "one more")])
        if len(waited) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("barnabas.cli.group.describe.time.sleep", wait)

    watched = command.done("group", "describe", group, "--watch", "7")

    assert waited == [7.0, 7.0] and watched.out.count(f"group {group}") == 2
    first, second = watched.out.split(f"group {group}")[1:]
    assert "LAG/S" not in first and re.search(rf"{topic_name} +0 .* \+[\d.,]+\n", second)


def test_group_of_the_new_protocol(command: Command, topic: str) -> None:
    """KIP-848."""
    config: dict[str, Any] = {"bootstrap.servers": command.bootstrap, "group.id": f"new-{topic}", "group.protocol": "consumer"}
    consumer = Consumer({**config, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic])
    deadline = time.monotonic() + JOIN_S
    while len(consumer.assignment()) < 2:
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)

    (described,) = command.done("group", "describe", f"new-{topic}", "-o", "json").data
    consumer.close()

    assert (described["type"], described["members"], described["protocol"]) == ("consumer", 1, "uniform")
    assert [each["lag"] for each in described["partitions"]] == [1, None]


def test_members_of_the_new_protocol_are_removed_and_its_own_states_are_told(
    command: Command, server_process: ServerProcess, topic: str
) -> None:
    """No heartbeat follows that of the second member: until one does, the group is Assigning or Reconciling, which librdkafka does not
    know. LeaveGroup is for members of both protocols (GroupMetadataManager.classicGroupLeaveToConsumerGroup)."""
    group = f"new-{topic}"

    def join(member: str, instance: str | None = None) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member, instance_id=instance, member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_names=[topic], topic_partitions=[],
        )  # fmt: skip
        while (answer := client.request(request, 1)).error_code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
            time.sleep(0.02)
        assert answer.error_code == ErrorCode.NONE, answer

    def state() -> tuple[str, int]:
        (row,) = command.done("group", "list", group, "-o", "json").data
        assert row["state"] == command.done("group", "describe", group, "-o", "json").data[0]["state"]
        return row["state"], row["members"]

    with WireClient(server_process.host, server_process.port) as client:
        client.request(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
        join("Zmlyc3QtbWVtYmVyLTEyMw")
        join("c2Vjb25kLW1lbWJlci0xMg", instance="two")
        told = state()
        by_instance = command.done("group", "remove-member", group, "--instance", "two", "--yes", "-o", "json").data
        by_id = command.done("group", "remove-member", group, "--member", "Zmlyc3QtbWVtYmVyLTEyMw", "--yes", "-o", "json").data

    assert [(each["member"], each["outcome"]) for each in (*by_instance, *by_id)] == [
        ("two", "removed"), ("Zmlyc3QtbWVtYmVyLTEyMw", "removed"),
    ]  # fmt: skip
    assert told in (("Assigning", 2), ("Reconciling", 2)) and state() == ("Empty", 0)


def test_read_only_context_refuses_changes(command: Command, group: str, topic: str) -> None:
    command.done("context", "add", "mine", "-b", command.bootstrap, "--read-only")

    for words in (
        ("reset", group, "--to", "start"), ("delete", group), ("delete-offsets", group, "--topic", topic),
        ("remove-member", group, "--all"),
    ):  # fmt: skip
        refused = command("group", *words, "--yes", "--context", "mine")
        assert refused.code == 1 and "read-only" in refused.err
    assert command("consume", topic, "-g", group, "-n", "1", "--context", "mine").code == 1
    fill(command, topic, [(0, "still there")])
    assert committed(command, group) == {0: 1, 1: 4}
