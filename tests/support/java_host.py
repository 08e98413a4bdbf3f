"""One JVM that runs Kafka's Java producer, consumer and command line tools for a whole test run (java/JavaHost.java)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.support.json_program import JsonProgram, to_bytes, to_text
from tests.support.kafka import java_command
from tests.support.messages import Message, Stored

TOOLS = "org.apache.kafka.tools"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool printed and its exit status."""

    status: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return [line for line in self.stdout.splitlines() if line.strip()]


class JavaHost(JsonProgram):
    """Owns the JVM. Calls are synchronous and answered in order; `close` ends it."""

    def __init__(self) -> None:
        super().__init__(java_command("JavaHost"))

    def produce(self, config: Mapping[str, str], topic: str, messages: Sequence[Message]) -> list[int]:
        """Sends the messages and returns their offsets; AssertionError when one is refused."""
        records = [
            {
                "partition": message.partition,
                "timestamp": message.timestamp_ms,
                "key": to_text(message.key),
                "value": to_text(message.value),
                "headers": [[name, to_text(value)] for name, value in message.headers],
            }
            for message in messages
        ]
        offsets: list[int] = self.ask({"op": "produce", "config": dict(config), "topic": topic, "records": records})["offsets"]
        return offsets

    def consume(self, config: Mapping[str, str], topic: str, count: int, *, timeout_s: float) -> list[Stored]:
        """Up to `count` records of all partitions from their beginning; fewer when the time is up."""
        command = {"op": "consume", "config": dict(config), "topic": topic, "count": count, "timeout_ms": int(timeout_s * 1000)}
        return [
            Stored(
                partition=record["partition"],
                offset=record["offset"],
                timestamp_ms=record["timestamp"],
                key=to_bytes(record["key"]),
                value=to_bytes(record["value"]),
                headers=tuple((name, to_bytes(value)) for name, value in record["headers"]),
            )
            for record in self.ask(command)["records"]
        ]

    def tool(self, main_class: str, *arguments: str, stdin: str = "", expected_status: int | None = 0) -> ToolResult:
        """Runs a tool; a name without a package is one of org.apache.kafka.tools. None accepts any exit status."""
        main = main_class if main_class.startswith(("org.", "kafka.")) else f"{TOOLS}.{main_class}"
        answer = self.ask({"op": "tool", "main": main, "args": list(arguments), "stdin": stdin})
        result = ToolResult(answer["status"], answer["stdout"], answer["stderr"])
        assert expected_status is None or result.status == expected_status, f"{main_class} {' '.join(arguments)}: {result}"
        return result
