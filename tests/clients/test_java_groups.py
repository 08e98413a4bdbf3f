"""Java consumers in groups: VerifiableConsumers in JVMs of their own share, take over, and read everything once."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.test_groups import PARTITIONS, fill
from tests.clients.topics import create_topic
from tests.support.java_host import TOOLS
from tests.support.kafka import start_java_tool
from tests.support.process import LineReader, ServerProcess

ASSIGNORS = ("RangeAssignor", "CooperativeStickyAssignor")
STOP_TIMEOUT_S = 60.0


class VerifiableConsumer:
    """Kafka's VerifiableConsumer, which prints an event as a JSON line for each thing that happens to it."""

    def __init__(self, server: ServerProcess, topic: str, assignor: str) -> None:
        self.process = start_java_tool(
            f"{TOOLS}.VerifiableConsumer",
            *("--bootstrap-server", server.bootstrap, "--topic", topic, "--group-id", topic),
            *("--assignment-strategy", f"org.apache.kafka.clients.consumer.{assignor}", "--session-timeout", "15000", "--verbose"),
        )
        self._reader = LineReader(self.process)

    def wait_for(self, count: int, event: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._reader.wait_for(count, containing=f'"name":"{event}"')]

    def values(self) -> list[str]:
        lines = [line for line in list(self._reader.lines) if '"name":"record_data"' in line]
        return [json.loads(line)["value"] for line in lines]

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_TIMEOUT_S)


@contextlib.contextmanager
def verifiable_consumer(server: ServerProcess, topic: str, assignor: str) -> Iterator[VerifiableConsumer]:
    consumer = VerifiableConsumer(server, topic, assignor)
    try:
        yield consumer
    finally:
        consumer.close()


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_share_and_take_over(server: ServerProcess, topic_name: str, assignor: str) -> None:
    create_topic(server, topic_name, partitions=PARTITIONS)

    with verifiable_consumer(server, topic_name, assignor) as first:
        first.wait_for(1, "partitions_assigned")
        fill(server, topic_name, 0, 100)
        first.wait_for(100, "record_data")
        with verifiable_consumer(server, topic_name, assignor) as second:
            second.wait_for(1, "partitions_assigned")
            first.wait_for(2, "partitions_assigned")
            fill(server, topic_name, 100, 100)
            second.wait_for(50, "record_data")
            first.wait_for(150, "record_data")
        taken_over = 3
        first.wait_for(taken_over, "partitions_assigned")
        fill(server, topic_name, 200, 100)
        first.wait_for(250, "record_data")

    values = sorted(int(value) for value in first.values() + second.values())
    assert values == list(range(300))
