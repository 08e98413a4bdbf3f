"""`barnabas topic` at Barnabas and at Apache Kafka."""

from __future__ import annotations

import time
from typing import Any

import yaml
from confluent_kafka import Consumer, TopicPartition

from tests.barnabas.cli.conftest import Command, fill

SEEN_S = 30


def test_topic_is_made_listed_and_deleted(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name, "-p", "2", "-c", "retention.ms=-1")
    fill(command, topic_name, [(0, "a"), (0, "b"), (1, "c")])

    (row,) = command.done("topic", "list", topic_name, "--output", "json").data
    assert row.pop("size_bytes") > 3 * 61  # the header of a batch
    assert row == {
        "name": topic_name, "partitions": 2, "replicas": 1, "records": 3, "under_replicated": 0, "without_leader": 0,
        "is_internal": False,
    }  # fmt: skip
    assert f"{topic_name} " in command.done("get", "topics").out
    refused = command("topic", "delete", topic_name)
    assert refused.code == 1 and f"delete topic {topic_name}: 2 partitions with 3 records" in refused.err and "--yes" in refused.err
    assert "nothing was done" in command.done("topic", "delete", topic_name, "--dry-run").err
    command.done("topic", "delete", topic_name, "--yes")
    assert command.done("topic", "list", topic_name, "-o", "json").data == []


def test_create_says_what_is_refused_and_goes_on_with_the_others(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name, "--dry-run")
    result = command("topic", "create", topic_name, "not a name", "-o", "json")

    assert result.code == 1 and "not a name: INVALID_TOPIC_EXCEPTION" in result.err
    assert [(each["topic"], each["is_done"]) for each in sorted(result.data, key=lambda each: str(each["topic"]))] == sorted(
        [("not a name", False), (topic_name, True)]
    )
    assert command("create", "topic", topic_name).code == 1
    assert "is there already" in command.done("topic", "create", topic_name, "--if-not-exists").out


def test_describe_has_offsets_changed_settings_and_groups(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name, "-p", "2")
    fill(command, topic_name, [(0, "a"), (0, "b"), (1, "c")])
    group = Consumer({"bootstrap.servers": command.bootstrap, "group.id": f"of-{topic_name}"})
    group.commit(offsets=[TopicPartition(topic_name, 0, 1)], asynchronous=False)
    group.close()
    command.done("topic", "alter", topic_name, "-s", "retention.ms=1000000", "-s", "cleanup.policy=compact", "-d", "flush.ms")
    command.done("topic", "alter-config", topic_name, "--delete", "retention.ms")

    def describe() -> dict[str, Any]:
        (described,) = yaml.safe_load(command.done("topic", "describe", topic_name, "--groups", "-o", "yaml").out)
        return dict(described)

    deadline = time.monotonic() + SEEN_S
    while [each["name"] for each in describe()["configs"] if each["source"] == "topic"] != ["cleanup.policy"]:
        assert time.monotonic() < deadline  # Apache Kafka applies an alteration after its answer
        time.sleep(0.02)
    described = describe()

    assert [(each["start_offset"], each["end_offset"], each["records"]) for each in described["partitions"]] == [(0, 2, 2), (0, 1, 1)]
    assert [each["leader"] for each in described["partitions"]] == described["partitions"][0]["isr"] * 2
    assert [each["lags"] for each in described["partitions"]] == [[0], [0]]
    assert [(each["name"], each["value"]) for each in described["configs"] if each["source"] == "topic"] == [("cleanup.policy", "compact")]
    assert described["groups"] == [{"group": f"of-{topic_name}", "partitions": 1, "lag": 1}]
    assert len(command.done("topic", "describe", topic_name, "-a", "-o", "json").data[0]["configs"]) > 20
    table = command.done("describe", "topic", topic_name, "--groups").out
    assert table.startswith(f"topic {topic_name}\nPARTITION") and "cleanup.policy" in table and f"of-{topic_name}" in table


def test_partitions_are_added_by_number_or_total(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name)

    command.done("topic", "add-partitions", topic_name, "-n", "2")
    command.done("topic", "add-partitions", topic_name, "--total", "5")
    refused = command("topic", "add-partitions", topic_name, "--partitions", "4")

    assert refused.code == 1 and "INVALID_PARTITIONS" in refused.err
    assert command.done("topic", "list", topic_name, "-o", "json").data[0]["partitions"] == 5


def test_trim_before_an_offset_a_time_and_all(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name, "-p", "2", "-c", "retention.ms=-1")
    for second in range(1, 4):
        fill(command, topic_name, [(0, "a"), (1, "b")], timestamp=1_700_000_000_000 + second * 1_000)

    def starts() -> list[int]:
        (described,) = command.done("topic", "describe", topic_name, "-o", "json").data
        return [each["start_offset"] for each in described["partitions"]]

    assert command("topic", "trim", topic_name, "--before", "1").code == 1
    assert starts() == [0, 0]
    command.done("topic", "delete-records", topic_name, "--offset", "1", "-p", "0", "--yes")
    assert starts() == [1, 0]
    trimmed = command.done("topic", "trim-prefix", topic_name, "-o", "@2023-11-14T22:13:22.500", "--yes", "--output", "json")
    assert trimmed.data == [{"partition": 0, "start_offset": 2}, {"partition": 1, "start_offset": 2}]
    assert "no record" in command.done("topic", "trim", topic_name, "-o", "@1700000001", "--yes").err
    command.done("topic", "trim", topic_name, "--before", "end", "--yes")
    assert starts() == [3, 3]


def test_what_is_not_there_or_not_understood(command: Command, topic_name: str) -> None:
    assert command("topic", "describe", topic_name).code == 1
    assert command("topic", "trim", topic_name, "-o", "1", "--yes").code == 1
    assert command.done("topic", "list", topic_name, "-o", "json").data == [], "asking made it"
    command.done("topic", "create", topic_name)
    assert command("topic", "trim", topic_name, "-o", "tomorrow", "--yes").code == 2
    assert command("topic", "trim", topic_name, "-o", "1", "-p", "7", "--yes").code == 2
    assert command("topic", "alter", topic_name).code == 2
    assert command("topic", "list", "(").code == 2


def test_clone_has_partitions_and_own_settings_of_the_other(command: Command, topic_name: str) -> None:
    clone = f"{topic_name}-clone"
    command.done("topic", "create", topic_name, "-p", "2", "-c", "retention.ms=1000000", "-c", "cleanup.policy=compact")
    fill(command, topic_name, [(0, "a")])

    command.done("topic", "clone", topic_name, clone, "--dry-run")
    made = command.done("clone", "topic", topic_name, clone, "-c", "retention.ms=5", "-o", "json").data

    assert made == [{"topic": clone, "outcome": f"is like {topic_name}", "is_done": True}]
    described = command.done("topic", "describe", clone, "-o", "json").data[0]
    deadline = time.monotonic() + SEEN_S
    while None in [each["records"] for each in described["partitions"]]:
        assert time.monotonic() < deadline  # Apache Kafka tells of a partition before its leader serves it
        described = command.done("topic", "describe", clone, "-o", "json").data[0]
    assert [each["records"] for each in described["partitions"]] == [0, 0]
    own = {each["name"]: each["value"] for each in described["configs"] if each["source"] == "topic"}
    assert own == {"retention.ms": "5", "cleanup.policy": "compact"}
    assert command("topic", "clone", topic_name, clone).code == command("topic", "clone", f"none-{topic_name}", "x").code == 1


def test_context_that_is_read_only_refuses_changes(command: Command, topic_name: str) -> None:
    command.done("topic", "create", topic_name)
    command.done("context", "add", "mine", "-b", command.bootstrap, "--read-only")

    for words in (
        ("create", "x"),
        ("alter", "-s", "a=b", topic_name),
        ("delete", topic_name, "--yes"),
        ("trim", topic_name, "-o", "1", "-y"),
    ):
        refused = command("topic", *words, "--context", "mine")
        assert refused.code == 1 and "read-only" in refused.err
    assert command.done("topic", "list", topic_name, "--context", "mine", "-o", "json").data[0]["name"] == topic_name
