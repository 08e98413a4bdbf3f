"""docs/three-machines.md, done as it stands there: three nodes form a cluster, one dies and loses its disk, a fourth comes and goes,
and all are killed at once.

The machines are ports of this one. Nothing acknowledged is lost: after each return all records are read, with their contents, in each
partition as they were written. `make test` leaves it out, since it takes 13 s of CPU and its parts have tests of their own: it runs with
BARNABAS_TEST_END_TO_END=1. The commands are the page's; a script says --yes to those that ask.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installed import wait_until
from tests.support.ports import free_ports
from tests.support.sources import ROOT

pytestmark = pytest.mark.skipif(not os.environ.get("BARNABAS_TEST_END_TO_END"), reason="BARNABAS_TEST_END_TO_END is not set")

PAGE = (ROOT / "docs" / "three-machines.md").read_text()
(PROPERTIES,) = re.findall(
    r"### Forming one of several machines.*?```properties\n(.*?)```", (ROOT / "docs" / "operations.md").read_text(), re.DOTALL
)
TIMEOUT_S = 60.0
ASKING = ("reassign", "unregister", "elect-leaders")


class Machines:
    """Nodes, each with a folder that has its server.properties and its data."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ports = dict(zip(range(1, 5), zip(*[iter(free_ports(8))] * 2, strict=True), strict=True))
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self.cluster_id = self.run("barnabas random-uuid").strip()

    def local(self, text: str) -> str:
        """With this machine's addresses for the page's."""
        for node_id, name in enumerate(("one", "two", "three", "four"), 1):
            broker, controller = self._ports[node_id]
            text = text.replace(f"{name}.example:9092", f"127.0.0.1:{broker}").replace(f"{name}.example:9093", f"127.0.0.1:{controller}")
        return text

    def run(self, line: str, node_id: int = 0, stdin: str = "") -> str:
        """What a command of the page printed, in the folder of a node."""
        words = shlex.split(self.local(line).replace("CLUSTER_ID", getattr(self, "cluster_id", "")))
        if set(words) & set(ASKING) and "--dry-run" not in words:
            words.append("--yes")
        command = [sys.executable, "-m", "barnabas", *words[1:]]
        folder = self.directory / str(node_id) if node_id else self.directory
        finished = subprocess.run(
            command, cwd=folder, env=_environment(), input=stdin, capture_output=True, text=True, timeout=300, check=False
        )
        assert finished.returncode == 0, f"{line}: {finished.stdout}{finished.stderr}"
        return finished.stdout

    def configure(self, node_id: int, roles: str) -> None:
        broker, controller = self._ports[node_id]
        listeners = [f"PLAINTEXT://127.0.0.1:{broker}", f"CONTROLLER://127.0.0.1:{controller}"]
        own = {
            "process.roles": roles,
            "node.id": str(node_id),
            "listeners": ",".join(listeners if "controller" in roles else listeners[:1]),
            "advertised.listeners": listeners[0],
            "log.dirs": "data",
        }
        lines = dict(line.split("=", 1) for line in self.local(PROPERTIES).splitlines()) | own
        (self.directory / str(node_id)).mkdir()
        (self.directory / str(node_id) / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def start(self, node_id: int) -> None:
        words = [sys.executable, "-m", "barnabas", "serve", "-c", "server.properties"]
        folder = self.directory / str(node_id)
        with open(folder / "log", "a", encoding="utf-8") as log:
            self._processes[node_id] = subprocess.Popen(
                words, cwd=folder, env=_environment(), stdout=subprocess.PIPE, stderr=log, text=True
            )

    def is_ready(self, node_id: int) -> bool:
        """Waits for the line, or for the process's end."""
        output = self._processes[node_id].stdout
        assert output is not None
        return "ready on" in output.readline()

    def end(self, node_id: int, by: signal.Signals) -> int:
        process = self._processes.pop(node_id)
        process.send_signal(by)
        return process.wait(TIMEOUT_S)

    def end_all(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("KAFKA_", "BARNABAS_"))}
    return {**kept, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    with contextlib.ExitStack() as stack:
        stack.callback(made.end_all)
        yield made


def lines_of(part: str) -> list[str]:
    (text,) = re.findall(rf"^## {part}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return re.findall(r"^    (barnabas .+)$", text, re.MULTILINE)


def status(machines: Machines) -> dict[int, dict[str, object]]:
    told = json.loads(machines.run("barnabas cluster status --bootstrap-server one.example:9092,three.example:9092 --json"))
    return {broker["id"]: broker for broker in told["brokers"]}


def in_sync(machines: Machines, node_id: int) -> bool:
    known = status(machines).get(node_id, {})
    return bool(known.get("replicas")) and known.get("out_of_sync") == 0


def read_back(machines: Machines, count: int) -> None:
    """Each record once, and each partition's in the order in which they were written."""
    read = machines.run("barnabas consume orders --exit -f '%p %s\\n' -b one.example:9092,three.example:9092")
    by_partition: dict[int, list[int]] = {}
    for line in read.splitlines():
        partition, number = map(int, line.split())
        by_partition.setdefault(partition, []).append(number)
    assert sorted(number for numbers in by_partition.values() for number in numbers) == list(range(count))
    assert all(numbers == sorted(numbers) for numbers in by_partition.values())


def test_three_machines_lose_one_and_a_fourth_comes_and_goes(machines: Machines) -> None:
    format_it, serve, look = lines_of("Form the cluster")
    assert serve == "barnabas serve -c server.properties"
    for node_id in (1, 2, 3):
        machines.configure(node_id, "broker,controller")
        machines.run(format_it, node_id)
        machines.start(node_id)
    assert all(machines.is_ready(node_id) for node_id in (1, 2, 3))
    machines.run(look)
    machines.run("barnabas topic create orders payments --partitions 6 -b one.example:9092")
    write = "barnabas produce orders -b one.example:9092,three.example:9092"
    machines.run(write, stdin="".join(f"{number}\n" for number in range(500)))

    # When one dies, and its disk with it.
    machines.end(2, signal.SIGKILL)
    machines.run(write, stdin="".join(f"{number}\n" for number in range(500, 1000)))
    for path in sorted((machines.directory / "2" / "data").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    machines.run(format_it, 2)
    machines.start(2)
    assert machines.is_ready(2)
    wait_until(lambda: in_sync(machines, 2), TIMEOUT_S, lambda: status(machines))
    (elect,) = lines_of("When one dies")
    machines.run(elect)
    assert all(status(machines)[node_id]["leaders"] for node_id in (1, 2, 3))
    read_back(machines, 1000)  # a third of it from what the node without a disk has fetched

    # A fourth comes, and goes.
    machines.configure(4, "broker")
    machines.run(format_it, 4)
    machines.start(4)
    assert machines.is_ready(4)
    wait_until(lambda: 4 in status(machines), TIMEOUT_S, lambda: status(machines))
    for line in lines_of("Add a fourth"):
        machines.run(line)
    assert status(machines)[4]["replicas"]
    move, look, forget = lines_of("Take one away")
    machines.run(move.replace(" __consumer_offsets", ""))  # no group has been here
    machines.run(look)
    assert status(machines)[4]["replicas"] == 0
    assert machines.end(4, signal.SIGTERM) == 0
    machines.run(forget)
    assert set(status(machines)) == {1, 2, 3}

    read_back(machines, 1000)

    # All are killed at once, and come back.
    for node_id in (1, 2, 3):
        machines.end(node_id, signal.SIGKILL)
    for node_id in (1, 2, 3):
        machines.start(node_id)
    assert all(machines.is_ready(node_id) for node_id in (1, 2, 3))
    wait_until(lambda: all(in_sync(machines, node_id) for node_id in (1, 2, 3)), TIMEOUT_S, lambda: status(machines))
    read_back(machines, 1000)
    machines.run(write, stdin="".join(f"{number}\n" for number in range(1000, 1100)))
    read_back(machines, 1100)
