"""The transactional clients of a campaign and the history that they leave: a source, and pipelines that copy what it wrote.

Each client is a process, which is killed, stopped and started again with the same transactional id. A transaction is one operation of the
history: ok or fail when its client was told so, info when the client died without an answer.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.load import CLASSIC, CONSUMER, Operation
from tests.faults.transactional_client import CALL_TIMEOUT_S, CALLS_MAX, MARK
from tests.support.kafka import java_command
from tests.support.process import checkout

INPUT = "in"
PARTITIONS = 3
TRANSACTION_TIMEOUT_MS = 12_000
RESTART_DELAY_S = 0.5
STOP_TIMEOUT_S = 30.0
HUNG_S = 2 * CALLS_MAX * CALL_TIMEOUT_S
STACK_S = 0.2  # that a client gets to write where it is
SOURCE = "source"
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Copiers of one group, from one topic to another; each value gets a mark, or (Java's copier) stays as it is."""

    name: str
    role: str
    input: str
    copiers: int
    protocol: str = CLASSIC
    marks: bool = True

    @property
    def output(self) -> str:
        return f"out-{self.name}"

    @property
    def group(self) -> str:
        return f"copiers-{self.name}"

    def original(self, value: str) -> str:
        """What was read, of a value that was written."""
        return value.rpartition(MARK)[0] if self.marks else value


# The second one reads what the first writes, aborted transactions among it.
AIOKAFKA_PIPELINE = Pipeline("aiokafka", "aiokafka", INPUT, copiers=1)
PYTHON_PIPELINES = (
    Pipeline("classic", "confluent-kafka", INPUT, copiers=2),
    Pipeline("consumer", "confluent-kafka", "out-classic", copiers=2, protocol=CONSUMER),
    AIOKAFKA_PIPELINE,
)
JAVA_PIPELINE = Pipeline("java", "java", INPUT, copiers=1, marks=False)


@dataclass
class TransactionHistory:
    """What the clients' lines said. Their threads only append to it."""

    operations: list[Operation] = field(default_factory=list)
    reads: list[Operation] = field(default_factory=list)
    client_errors: Counter[str] = field(default_factory=Counter)

    def counts(self) -> Counter[str]:
        return Counter(operation["t"] for operation in self.operations)


class Client:
    """One client with its lives: a life that ends is followed by the next until `close`. A thread reads what it tells."""

    def __init__(self, name: str, command: Callable[[int], Sequence[str]], history: TransactionHistory, log_path: Path) -> None:
        self.name = name
        self.failures = 0
        self._log_path = log_path
        self._command = command
        self._history = history
        self._life = 0
        self._closed = False
        self._word = ""
        self._paused = threading.Event()
        self._lock = threading.Lock()  # over the process and the word
        self._open: Operation | None = None
        self._hung: Operation | None = None
        self._process = self._start()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def kill(self) -> None:
        """kill -9. The next life begins at once."""
        self._process.send_signal(signal.SIGKILL)

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def say(self, word: str) -> None:
        """To this life and those that follow."""
        with self._lock:
            self._word = word
            self._paused.clear()
            self._tell(self._process)

    def wait_paused(self, timeout_s: float) -> bool:
        return self._paused.wait(timeout_s)

    @property
    def is_idle(self) -> bool:
        """Whether it has no transaction of which it has not told the end."""
        return self._open is None

    def end_if_hung(self) -> None:
        """Kill it if its transaction has been open for longer than all its calls may take; its log has where it was."""
        operation = self._open
        if operation is not None and operation is not self._hung and time.monotonic_ns() - operation["inv"] > HUNG_S * 1e9:
            self._hung = operation
            self._history.client_errors[f"{self.name} hung"] += 1
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(STACK_S)
            self.kill()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._process.kill()
        self._thread.join(STOP_TIMEOUT_S)

    def _run(self) -> None:
        while True:
            assert self._process.stdout is not None
            for line in self._process.stdout:
                self._take(line)
            status = self._process.wait()
            self._end_open("info", {})
            if status > 0:
                self.failures += 1
                self._history.client_errors[f"{self.name} ended by itself"] += 1
            time.sleep(RESTART_DELAY_S)
            with self._lock:
                if self._closed:
                    return
                self._process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        self._life += 1
        # The consumer that looks at the output begins at its end.
        self._history.reads.append({"p": self._observer, "t": "ok", "f": "assign", "keys": [], "seek": True})
        pipe = subprocess.PIPE
        words = self._command(self._life)
        with self._log_path.open("a") as log:
            process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=log, text=True, cwd=checkout())
        self._tell(process)
        return process

    @property
    def _observer(self) -> str:
        return f"{self.name}/observer"

    def _tell(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # it is gone: the next life is told
            process.stdin.write(self._word + "\n")
            process.stdin.flush()

    def _take(self, line: str) -> None:
        """Puts what a client tells into the history. Java's copier tells nothing that is judged."""
        if not line.startswith("{"):
            return
        told = json.loads(line)
        if "error" in told:
            self._history.client_errors[f"{self.name} {told['error']}"] += 1
        elif "paused" in told:
            self._paused.set()
        elif "read" in told:
            read = {key: [tuple(each) for each in of] for key, of in told["read"].items()}
            who, moving = (f"{self.name}/input", set(read)) if told["moves"] else (self._observer, set())
            self._history.reads.append({"p": who, "t": "ok", "f": "poll", "m": [("poll", read)], "rebalanced": moving})
        elif "begin" in told:
            self._open = {"p": self.name, "f": "txn", "m": [("send", key, None, value) for key, value in told["sends"]], "inv": told["at"]}
        elif "end" in told:
            self._end_open(told["t"], told)

    def _end_open(self, outcome: str, told: dict[str, Any]) -> None:
        operation, self._open = self._open, None
        if operation is None:
            return
        offsets = told.get("offsets") or [None] * len(operation["m"])
        reads = {key: [tuple(each) for each in of] for key, of in told.get("reads", {}).items()}
        sends = [(*send[:2], offset if outcome == "ok" else None, send[3]) for send, offset in zip(operation["m"], offsets, strict=True)]
        steps = [("poll", reads), *sends] if reads else sends
        self._history.operations.append(
            {**operation, "t": outcome, "m": steps, "rebalanced": set(reads), "ret": told.get("at", time.monotonic_ns())}
        )


class TransactionLoad:
    """All clients of a campaign with their history. The source starts paused."""

    def __init__(
        self, bootstrap: str, pipelines: Sequence[Pipeline], log_dir: Path, *, debug: str = "", timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> None:
        """Each client's standard error goes to a file of `log_dir`; `debug` is what librdkafka logs there ("eos,protocol")."""
        self.history = TransactionHistory()
        self.pipelines = pipelines
        self._bootstrap = bootstrap
        self._log_dir = log_dir
        self._debug = debug
        self._timeout_ms = timeout_ms
        log_dir.mkdir(exist_ok=True)
        self.source = self._client(SOURCE, lambda life: [*self._python(SOURCE, SOURCE, life), "--output", INPUT])
        self.clients = {SOURCE: self.source}
        for pipeline in pipelines:
            for number in range(pipeline.copiers):
                name = f"{pipeline.name}-{number}"
                self.clients[name] = self._client(name, lambda life, name=name, of=pipeline: self._copier(of, name, life))

    def resume(self) -> None:
        self.source.say("resume")

    def pause(self, timeout_s: float) -> bool:
        """Stops the source. Whether its last transaction has an end within the time."""
        self.source.say("pause")
        return self.source.wait_paused(timeout_s)

    def take(self) -> tuple[list[Operation], list[Operation]]:
        """The transactions and the reads since the last time."""
        operations, self.history.operations = self.history.operations, []
        reads, self.history.reads = self.history.reads, []
        return operations, reads

    @property
    def failures(self) -> dict[str, int]:
        """How often clients ended by an error of their own, of those that did."""
        return {name: client.failures for name, client in self.clients.items() if client.failures}

    def close(self) -> None:
        for client in self.clients.values():
            client.close()

    def _client(self, name: str, command: Callable[[int], Sequence[str]]) -> Client:
        return Client(name, command, self.history, self._log_dir / f"{name}.log")

    def _python(self, role: str, name: str, life: int) -> list[str]:
        module = [sys.executable, "-m", "tests.faults.transactional_client", role]
        words = [*module, "--bootstrap", self._bootstrap, "--name", name, "--life", str(life), "--partitions", str(PARTITIONS)]
        return [*words, "--debug", self._debug, "--timeout-ms", str(self._timeout_ms)]

    def _copier(self, pipeline: Pipeline, name: str, life: int) -> list[str]:
        if pipeline.role == "java":
            options = {
                "broker-list": self._bootstrap,
                "input-topic": pipeline.input,
                "input-partition": "0",  # which counts for nothing in a group
                "output-topic": pipeline.output,
                "consumer-group": pipeline.group,
                "transaction-size": "20",
                "transaction-timeout": str(self._timeout_ms),
                "transactional-id": name,
            }
            words = [word for option, value in options.items() for word in (f"--{option}", value)]
            return java_command(COPIER, *words, "--enable-random-aborts", "--group-mode", "--use-group-metadata")
        topics = ["--input", pipeline.input, "--output", pipeline.output]
        return [*self._python(pipeline.role, name, life), *topics, "--group", pipeline.group, "--protocol", pipeline.protocol]
