"""A user's project in a fresh virtual environment: many tests, each with a broker of its own, alone and under pytest-xdist.

    .venv/bin/python -m tests.barnabas.sample_project                    100 tests, three ways; prints what each took and what was left
    .venv/bin/python -m tests.barnabas.sample_project --tests 20 --python python3.13

pip fetches pytest, pytest-xdist and confluent-kafka, and the wheel is built from this checkout. test_sample_project.py runs a shorter
one in `make test`, in an environment that borrows the tests' libraries.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.support.installed import TIMEOUT_S, Project, run, wait_until

RUN_TIMEOUT_S = 600
CLIENTS = ("pytest", "pytest-xdist", "confluent-kafka")

CODE = """
import os
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer

ADDRESSES = Path(os.environ["ADDRESSES"])


@pytest.mark.barnabas(topics={{"orders": 3}})
@pytest.mark.parametrize("number", range({count}))
def test_an_order_comes_through(barnabas_broker, number):
    address = barnabas_broker.bootstrap_servers
    (ADDRESSES / f"{{number}} {{address}}").touch()
    producer = Producer({{"bootstrap.servers": address}})
    producer.produce("orders", str(number), partition=1)
    assert producer.flush(30) == 0
    consumer = Consumer({{"bootstrap.servers": address, "group.id": "readers", "auto.offset.reset": "earliest"}})
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    consumer.close()
    assert (message.value(), message.offset()) == (str(number).encode(), 0)
"""


class Duration(NamedTuple):
    """On a machine that does other work as well, what the processors did tells more than the clock."""

    wall_s: float
    cpu_s: float

    def __str__(self) -> str:
        return f"{self.wall_s:.1f} s ({self.cpu_s:.1f} s of CPU, of pytest and all brokers)"


class Sample:
    """`count` such tests. Each notes its broker's address in a file."""

    def __init__(self, project: Project, count: int) -> None:
        self.project = project
        self.count = count
        self.addresses = project.directory / "addresses"
        self.addresses.mkdir(exist_ok=True)
        project.write("test_sample.py", CODE.format(count=count))

    def run(self, *arguments: str) -> Duration:
        """How long all of them took. AssertionError when one failed, or when something is left."""
        self._forget()
        started, cpu_before_s = time.monotonic(), _cpu_of_children_s()
        outcome = self.project.pytest("-q", *arguments, environ=self._environ(), timeout_s=RUN_TIMEOUT_S)
        took = Duration(time.monotonic() - started, _cpu_of_children_s() - cpu_before_s)
        assert outcome.outcomes == {"passed": self.count}, outcome
        assert len(self._ports()) > self.count // 2  # each its own; a port may come again
        self._check_nothing_left(timeout_s=0.0)
        return took

    def kill(self, *arguments: str) -> float:
        """Kill pytest (-9) once a third of the tests has begun; the seconds until nothing is left."""
        self._forget()
        with (self.project.directory / "output").open("w") as output:
            pytest = subprocess.Popen(
                self.project.command("-q", *arguments),
                cwd=self.project.directory,
                env={**self.project.environ(), **self._environ()},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        wait_until(lambda: len(list(self.addresses.iterdir())) > self.count // 3, RUN_TIMEOUT_S, lambda: "no test begins")
        pytest.send_signal(signal.SIGKILL)
        pytest.wait(TIMEOUT_S)
        killed = time.monotonic()
        self._check_nothing_left(timeout_s=TIMEOUT_S)
        return time.monotonic() - killed

    def _check_nothing_left(self, timeout_s: float) -> None:
        """No process, no directory, nobody who listens."""

        def left() -> list[str]:
            return self.project.leftovers() + self._listening()

        if timeout_s:
            wait_until(lambda: not left(), timeout_s, left)
        assert left() == []

    def _listening(self) -> list[str]:
        """The brokers' ports that are still listened on, IPv4. For Linux."""
        ports = self._ports()
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return [f"port {port}" for row in rows if row[3] == "0A" and (port := int(row[1].partition(":")[2], 16)) in ports]

    def _ports(self) -> set[int]:
        return {int(path.name.rpartition(":")[2]) for path in self.addresses.iterdir()}

    def _forget(self) -> None:
        for path in self.addresses.iterdir():
            path.unlink()

    def _environ(self) -> dict[str, str]:
        return {"ADDRESSES": str(self.addresses)}


def _cpu_of_children_s() -> float:
    """Of all that have ended and were waited for, their own children included."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description="Many tests, each with a broker of its own, in a fresh virtual environment.")
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the virtual environment")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sample project ") as name:
        directory = Path(name)
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", name)
        run(options.python, "-m", "venv", str(directory / "venv"))
        pip = [str(directory / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run(*pip, str(next(directory.glob("*.whl"))), *CLIENTS)
        sample = Sample(Project(directory / "venv", directory), options.tests)
        print(f"{options.tests} tests with a broker each, {os.cpu_count()} cores, {options.python}")
        print(f"one after the other: {sample.run()}")
        print(f"pytest -n 2: {sample.run('-n', '2')}")
        print(f"pytest killed in the middle: nothing left after {sample.kill():.2f} s")
        print(f"pytest -n 2 killed in the middle: nothing left after {sample.kill('-n', '2'):.2f} s")


if __name__ == "__main__":
    main()
