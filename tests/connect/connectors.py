"""File connectors: one reads lines from a file into a topic, the other writes a topic's records into a file."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.connect import ConnectWorker

FEED_INTERVAL_S = 0.01
FEED_LINES = 20
# Records that a source takes in one poll. After a full batch it leaves what it has read beyond that until the file grows again.
BATCH_SIZE = "1000000"
# For a sink whose worker will be killed: its group waits for the dead member. Only a classic group takes this from its members.
SHORT_SESSION = {"consumer.override.session.timeout.ms": "6000", "consumer.override.heartbeat.interval.ms": "500"}


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def firsts(lines: list[str]) -> list[str]:
    """The lines in the order in which they came first."""
    return list(dict.fromkeys(lines))


class Connectors:
    """Connectors around one topic. `worker` is the one that is asked, which a test may exchange for another one of its group."""

    def __init__(self, worker: ConnectWorker, directory: Path, topic: str) -> None:
        self.worker = worker
        self.directory = directory
        self.topic = topic
        self.made: list[str] = []

    def start_source(self, file: Path, **config: str) -> str:
        """The name of a connector whose task reads lines of `file` into the topic, which Connect makes (KIP-158)."""
        defaults = {
            "connector.class": "FileStreamSource", "file": str(file), "topic": self.topic, "batch.size": BATCH_SIZE,
            "topic.creation.default.partitions": "1", "topic.creation.default.replication.factor": "-1",
        }  # fmt: skip
        return self.start("source", {**defaults, **config})

    def start_sink(self, file: Path, **config: str) -> str:
        """The name of a connector whose task writes the topic's records into `file`."""
        return self.start("sink", {"connector.class": "FileStreamSink", "file": str(file), "topics": self.topic, **config})

    def start(self, kind: str, config: Mapping[str, str]) -> str:
        name = f"{self.topic}-{kind}"
        self.worker.ask("PUT", f"/connectors/{name}/config", {"tasks.max": "1", **config})
        self.made.append(name)
        self.wait_state(name, "RUNNING")
        return name

    def status(self, name: str) -> Any:
        return self.worker.ask("GET", f"/connectors/{name}/status")

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """What is committed: of a sink by topic and partition, of a source the position in its file."""
        found: list[dict[str, Any]] = self.worker.ask("GET", f"/connectors/{name}/offsets")["offsets"]
        return found

    def wait_state(self, name: str, state: str, *, workers: tuple[str, ...] = ()) -> None:
        """Returns once the connector and its task are in this state, on one of these workers if any are given."""

        def is_there() -> bool:
            status = self.status(name) if self.knows(name) else None
            if status is None or status["connector"]["state"] != state:
                return False
            tasks = status["tasks"]
            if state == "STOPPED":
                return not tasks
            places = {status["connector"]["worker_id"], *(task["worker_id"] for task in tasks)}
            return bool(tasks) and all(task["state"] == state for task in tasks) and (not workers or places <= set(workers))

        self.worker.wait_for(is_there, f"{name} is {state}")

    def knows(self, name: str) -> bool:
        """Whether the worker has a status of the connector, which comes a moment after its config."""
        return name in self.worker.ask("GET", "/connectors?expand=status")

    def set_state(self, name: str, verb: str, state: str) -> None:
        """`pause`, `resume` or `stop`, and what it leads to."""
        self.worker.ask("PUT", f"/connectors/{name}/{verb}")
        self.wait_state(name, state)

    def wait_lines(self, file: Path, lines: list[str]) -> None:
        """Returns once `file` has each of the lines, however often."""
        self.worker.wait_for(lambda: set(lines) <= set(read_lines(file)), f"{len(lines)} lines in {file.name}")

    def delete_all(self) -> None:
        for name in self.made:
            self.worker.ask("DELETE", f"/connectors/{name}")


class Feed:
    """Appends numbered lines to a file for as long as it is entered, on a thread of its own. `lines` are those so far."""

    def __init__(self, file: Path) -> None:
        self.lines: list[str] = []
        self._file = file
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(FEED_INTERVAL_S):
            self.append(FEED_LINES)

    def append(self, count: int) -> None:
        lines = [f"line {number}" for number in range(len(self.lines), len(self.lines) + count)]
        with self._file.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))
        self.lines += lines
