"""One JVM that runs Kafka's Java producer, consumer and command line tools for a whole test run (java/JavaHost.java)."""

from __future__ import annotations

import base64
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.kafka import TOOL_JVM_FLAGS, class_path, java_source
from tests.support.messages import Message, Stored

CLOSE_TIMEOUT_S = 60.0
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


class JavaHost:
    """Owns the JVM. Calls are synchronous and answered in order; `close` ends it."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the JVM runs
        self._process = subprocess.Popen(
            ["java", *TOOL_JVM_FLAGS, "-cp", class_path(), java_source("JavaHost.java")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def produce(self, config: Mapping[str, str], topic: str, messages: Sequence[Message]) -> list[int]:
        """Sends the messages and returns their offsets; AssertionError when one is refused."""
        records = [
            {
                "partition": message.partition,
                "timestamp": message.timestamp_ms,
                "key": _to_text(message.key),
                "value": _to_text(message.value),
                "headers": [[name, _to_text(value)] for name, value in message.headers],
            }
            for message in messages
        ]
        offsets: list[int] = self._ask({"op": "produce", "config": dict(config), "topic": topic, "records": records})["offsets"]
        return offsets

    def consume(self, config: Mapping[str, str], topic: str, count: int, *, timeout_s: float) -> list[Stored]:
        """Up to `count` records of all partitions from their beginning; fewer when the time is up."""
        command = {"op": "consume", "config": dict(config), "topic": topic, "count": count, "timeout_ms": int(timeout_s * 1000)}
        return [
            Stored(
                partition=record["partition"],
                offset=record["offset"],
                timestamp_ms=record["timestamp"],
                key=_to_bytes(record["key"]),
                value=_to_bytes(record["value"]),
                headers=tuple((name, _to_bytes(value)) for name, value in record["headers"]),
            )
            for record in self._ask(command)["records"]
        ]

    def tool(self, main_class: str, *arguments: str, stdin: str = "", expected_status: int | None = 0) -> ToolResult:
        """Runs a tool; a name without a package is one of org.apache.kafka.tools. None accepts any exit status."""
        main = main_class if main_class.startswith(("org.", "kafka.")) else f"{TOOLS}.{main_class}"
        answer = self._ask({"op": "tool", "main": main, "args": list(arguments), "stdin": stdin})
        result = ToolResult(answer["status"], answer["stdout"], answer["stderr"])
        assert expected_status is None or result.status == expected_status, f"{main_class} {' '.join(arguments)}: {result}"
        return result

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(CLOSE_TIMEOUT_S)
        self._log.close()

    def _ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the JVM is gone\n{self._log_text()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise AssertionError(f"Java: {answer['error']}\n{self._log_text()[-4000:]}")
        return answer

    def _log_text(self) -> str:
        self._log.seek(0)
        return self._log.read()


def _to_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _to_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
