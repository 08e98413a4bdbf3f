"""A driver process of the sink's campaign with its JVM and its Python workers: asked over its pipes, killed as a whole."""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.pipeline.spark_support import CHECKOUT
from tests.support.process import LineReader, processes_of_session

START_TIMEOUT_S = 600.0
ANSWER_TIMEOUT_S = 300.0


class DriverProcess:
    """Started by the constructor, in a session of its own; `settings` are those of the driver program."""

    def __init__(
        self, settings: Mapping[str, Any], environment: Mapping[str, str], executor_processes: Callable[[], list[int]] = list
    ) -> None:
        """`executor_processes` finds those of other machines' executors, which are not in the driver's session."""
        self._executor_processes = executor_processes
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {0: queue.Queue()}
        self._numbers = itertools.count(1)
        answers, said = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.sink_campaign.driver", json.dumps(settings), str(said)],
            cwd=CHECKOUT, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, start_new_session=True, pass_fds=(said,),
        )  # fmt: skip
        os.close(said)
        threading.Thread(target=self._take, args=(answers,), name="answers", daemon=True).start()
        self._lines = LineReader(self._process)
        self.cpu_s = 0.0
        """What its processes had used when it was killed, those that had ended before left out."""

    def wait_ready(self) -> None:
        """Returns once Spark has started. AssertionError if it does not."""
        self._answer(0, START_TIMEOUT_S)

    @property
    def output(self) -> str:
        return "\n".join(self._lines.lines[-60:])

    def send(self, do: str, **options: Any) -> int:
        """Ask without waiting; `answer` takes what this returns."""
        number = next(self._numbers)
        self._answers[number] = queue.Queue()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"number": number, "do": do, "with": options}) + "\n")
        self._process.stdin.flush()
        return number

    def ask(self, do: str, **options: Any) -> Any:
        """AssertionError if the driver fails, or does not answer in time."""
        return self.answer(self.send(do, **options))

    def answer(self, number: int, timeout_s: float = ANSWER_TIMEOUT_S) -> Any:
        answer = self._answer(number, timeout_s)
        assert "failure" not in answer, answer["failure"]
        return answer.get("result")

    def find_answer(self, number: int, timeout_s: float) -> bool:
        """Whether it has answered, which `answer` then returns at once."""
        deadline_s = time.monotonic() + timeout_s
        while self._answers[number].empty() and time.monotonic() < deadline_s:
            time.sleep(0.02)
        return not self._answers[number].empty()

    def kill(self, spared: Collection[int] = ()) -> None:
        """kill -9 of the Python driver, its JVM, its executors and all their workers but the spared ones."""
        self.cpu_s = kill_all((*processes_of_session(self._process.pid), *self._executor_processes()), spared)
        self._process.wait()

    def kill_executors(self) -> None:
        """kill -9 of the executors' JVMs, whose Python processes end by that."""
        for pid in filter(is_java, self._executor_processes()):
            kill_process(pid)

    def _take(self, descriptor: int) -> None:
        """Its answers, until it has ended; the last may be cut by a kill -9."""
        with open(descriptor) as answers:
            for line in answers:
                if line.endswith("\n"):
                    answer = json.loads(line)
                    self._answers[answer["number"]].put(answer)

    def _answer(self, number: int, timeout_s: float) -> dict[str, Any]:
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                answer = self._answers[number].get(timeout=0.5)
                del self._answers[number]
                return answer
            except queue.Empty:
                assert self._process.poll() is None, f"the driver ended by itself:\n{self.output}"
                assert time.monotonic() < deadline_s, f"the driver did not answer in {timeout_s:.0f} s:\n{self.output}"


def kill_session(session: int, spared: Collection[int] = ()) -> float:
    """As kill_all, for all processes of a session."""
    return kill_all(processes_of_session(session), spared)


def kill_all(processes: Iterable[int], spared: Collection[int] = ()) -> float:
    """kill -9 of all but the spared ones. Python first: a daemon that sees its JVM go ends its workers by SIGHUP.
    Returns the seconds of CPU that they had used."""
    ordered = sorted(processes, key=is_java)
    cpu_s = sum(map(_cpu_s, ordered))
    for pid in ordered:
        if pid not in spared:
            kill_process(pid)
    return cpu_s


def kill_process(pid: int) -> None:
    """kill -9; nothing if it has ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _cpu_s(pid: int) -> float:
    """User and system time, with that of children that it has waited for."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def is_java(pid: int) -> bool:
    try:
        return b"java" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    except OSError:
        return False
