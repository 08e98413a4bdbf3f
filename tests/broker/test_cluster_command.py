"""`barnabas cluster up` and `barnabas cluster status`, as a person runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.cli.cluster_up import RESTARTS_MAX
from tests.support.cluster import free_ports
from tests.support.commands import run_here
from tests.support.process import checkout

LAUNCHER = checkout() / "barnabas" / "__main__.py"
TIMEOUT_S = 90.0
INTERNAL_TOPICS = {"__consumer_offsets", "__transaction_state"}
POLL_INTERVAL_S = 0.1


class Up:
    """`barnabas cluster up` with a pipe at its standard input. `line` is what it says once it is ready, "" if it ends before."""

    def __init__(self, *arguments: str, temporary: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(LAUNCHER), "cluster", "up", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(temporary), "KAFKA_NUM_PARTITIONS": "wrong"},
            text=True,
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """The exit status and what it wrote to stderr."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=TIMEOUT_S)
        return self.process.returncode, errors

    @property
    def bootstrap(self) -> str:
        found = re.search(r"ready on (\S+)", self.line)
        return json.loads(self.line)["bootstrap_servers"] if found is None else found[1]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def start(*arguments: str) -> Up:
        started.append(Up(*arguments, temporary=tmp_path))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def status(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(LAUNCHER), "cluster", "status", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def report(*arguments: str) -> dict[str, Any]:
    """As `status` tells programs. In this process: tests ask again and again."""
    done = run_here("cluster", "status", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def wait_for_report(holds: Callable[[dict[str, Any]], bool], *arguments: str) -> dict[str, Any]:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not holds(said := report(*arguments)):
        assert time.monotonic() < deadline_s, said
        time.sleep(POLL_INTERVAL_S)
    return said


def has_internal_topics(said: dict[str, Any]) -> bool:
    return said["topics"] == len(INTERNAL_TOPICS) and not said["under_replicated"]


def test_a_cluster_is_formed_without_an_error_in_its_log_told_of_and_stopped_and_comes_back_as_it_was(
    up: Callable[..., Up], tmp_path: Path
) -> None:
    folder = str(tmp_path / "cluster")
    first_port = free_ports(1)[0]
    first = up("--directory", folder, "--port", str(first_port))
    assert first.bootstrap == ",".join(f"127.0.0.1:{first_port + number}" for number in range(3))

    said = wait_for_report(has_internal_topics, "--directory", folder)
    assert [(broker["id"], broker["is_fenced"], broker["lag"] is not None) for broker in said["brokers"]] == [
        (1, False, True),
        (2, False, True),
        (3, False, True),
    ]
    assert [voter["id"] for voter in said["quorum"]["voters"]] == [1, 2, 3]
    assert {each["topic"] for each in said["partitions"]} == INTERNAL_TOPICS
    assert all(each["min_isr"] == 2 and sorted(each["replicas"]) == [1, 2, 3] for each in said["partitions"])
    assert {each["replicas"][0] for each in said["partitions"]} == {1, 2, 3}, "not all brokers lead partitions of the offsets"
    for node_id in (1, 2, 3):
        assert not re.search(r" (ERROR|WARNING) ", (tmp_path / "cluster" / f"node-{node_id}" / "log").read_text())
    assert first.end() == (0, "")

    second = up("--directory", folder)
    assert second.bootstrap == first.bootstrap
    assert report("--bootstrap-server", second.bootstrap)["cluster_id"] == said["cluster_id"]
    assert second.end(signal.SIGINT) == (0, "")


def test_a_broker_that_dies_is_reported_and_its_replicas_are_out_of_sync(up: Callable[..., Up]) -> None:
    cluster = up("--ephemeral", "--override", "broker.session.timeout.ms=2000", "--override", "broker.heartbeat.interval.ms=500")
    brokers = {broker["node_id"]: broker for broker in json.loads(cluster.line)["brokers"]}
    wait_for_report(has_internal_topics, "--bootstrap-server", cluster.bootstrap)

    os.kill(brokers[3]["pid"], signal.SIGKILL)
    others = ",".join(brokers[node_id]["bootstrap_servers"] for node_id in (1, 2))
    said = wait_for_report(lambda said: len(said["under_replicated"]) == len(said["partitions"]), "--bootstrap-server", others)
    text = status("--bootstrap-server", others).stdout

    assert {broker["id"]: broker["is_fenced"] for broker in said["brokers"]} == {1: False, 2: False, 3: True}
    assert said["under_min_isr"] == said["offline"] == []
    assert "8 under-replicated, 0 under min ISR, 0 offline" in text and re.search(r"^3 +\S+ +- +fenced ", text, re.MULTILINE)
    exit_status, errors = cluster.end()
    assert exit_status == 0
    assert re.fullmatch(r"barnabas cluster up: node 3 was killed by signal 9 and is not started again; see .*/node-3/log\n", errors)


def test_a_broker_of_a_folder_that_dies_is_started_again_until_that_does_not_help(up: Callable[..., Up], tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    cluster = up("--directory", str(folder), "--port", "0", "--json")
    before = {broker["node_id"]: broker for broker in json.loads(cluster.line)["brokers"]}

    killed = [before[3]["pid"]]
    os.kill(killed[-1], signal.SIGKILL)
    for _ in range(RESTARTS_MAX):
        killed.append(next_pid(folder / "node-3" / "log", killed))
        os.kill(killed[-1], signal.SIGKILL)

    others = ",".join(before[node_id]["bootstrap_servers"] for node_id in (1, 2))
    wait_for_report(lambda said: said["brokers"][2]["is_fenced"], "--bootstrap-server", others)

    exit_status, errors = cluster.end()
    *restarted, left = errors.splitlines()
    assert exit_status == 0
    assert [line.partition("; ")[0] for line in restarted] == [
        "barnabas cluster up: node 3 was killed by signal 9 and is started again"
    ] * RESTARTS_MAX
    assert "is not started again" in left


def next_pid(log: Path, killed: Collection[int]) -> int:
    """Of the node that writes this log, once it is ready again. One that was killed may have died before it wrote that."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not (pids := re.findall(r" ready .* pid=(\d+)", log.read_text())) or int(pids[-1]) in killed:
        assert time.monotonic() < deadline_s, log.read_text()
        time.sleep(POLL_INTERVAL_S)
    return int(pids[-1])


def test_an_ephemeral_cluster_ends_with_its_pipe_and_leaves_nothing(up: Callable[..., Up], tmp_path: Path) -> None:
    cluster = up("--ephemeral", "--brokers", "1")
    (broker,) = json.loads(cluster.line)["brokers"]
    assert Path(broker["data_dir"]).is_relative_to(tmp_path)

    _, errors = cluster.process.communicate(timeout=TIMEOUT_S)  # closes its standard input

    assert (cluster.process.returncode, errors, list(tmp_path.iterdir())) == (0, "", [])


def test_a_folder_s_cluster_grows_and_does_not_shrink(up: Callable[..., Up], tmp_path: Path) -> None:
    folder = str(tmp_path / "cluster")
    assert up("--directory", folder, "--brokers", "1", "--port", "0").end()[0] == 0

    grown = up("--directory", folder, "--brokers", "2", "--port", "0")
    said = report("--bootstrap-server", grown.bootstrap, "--directory", folder)
    assert [broker["id"] for broker in said["brokers"]] == [1, 2]
    assert grown.end()[0] == 0

    assert up("--directory", folder, "--brokers", "1").process.communicate(timeout=TIMEOUT_S)[1] == (
        f"barnabas cluster up: the cluster in {folder} has 2 brokers: with fewer, replicas would be missing\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["up", "--override", "num.partitions=0"],
            "barnabas: Invalid value 0 for configuration num.partitions: Value must be at least 1\n",
        ),
        (["up", "--override", "num.partition=1"], "barnabas: Unknown configuration num.partition\n"),
        (["up", "--override", "log.dirs=mine"], "barnabas cluster up: --override log.dirs is not possible: each node has its own\n"),
        (["status", "--bootstrap-server", "127.0.0.1:1"], "barnabas cluster status: no broker answers: 127.0.0.1:1: Connection refused\n"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_a_failure(arguments: list[str], said: str, tmp_path: Path) -> None:
    command, *rest = arguments
    done = subprocess.run(
        [sys.executable, str(LAUNCHER), "cluster", command, "--directory", str(tmp_path / "cluster"), *rest],
        capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_a_port_that_is_taken_is_one_line_and_a_failure(up: Callable[..., Up], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        cluster = up("--directory", str(tmp_path / "cluster"), "--brokers", "1", "--port", str(port))

        assert cluster.process.communicate(timeout=TIMEOUT_S)[1] == (
            f"barnabas cluster up: node 1 did not start: listener PLAINTEXT: can't listen on 127.0.0.1:{port}: Address already in use\n"
        )
    assert cluster.process.returncode == 1


def test_a_second_start_in_a_folder_that_is_in_use_changes_nothing_there(up: Callable[..., Up], tmp_path: Path) -> None:
    """It would give the running cluster other ports in cluster.json, where `cluster status` finds them."""
    folder = tmp_path / "cluster"
    first = up("--directory", str(folder), "--brokers", "1", "--port", "0")
    before = (folder / "cluster.json").read_text()

    second = up("--directory", str(folder), "--port", "0")

    assert second.process.communicate(timeout=TIMEOUT_S)[1] == (
        f"barnabas cluster up: a cluster runs in {folder} already; --directory takes another folder\n"
    )
    assert (folder / "cluster.json").read_text() == before
    assert first.end() == (0, "")
    assert up("--directory", str(folder)).end() == (0, "")


def test_a_cluster_serves_on_if_the_reader_of_its_line_has_left(tmp_path: Path) -> None:
    folder = str(tmp_path / "cluster")
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, str(LAUNCHER), "cluster", "up", "--directory", folder, "--brokers", "1", "--port", "0"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)

    deadline_s = time.monotonic() + TIMEOUT_S
    while status("--directory", folder).returncode:
        assert process.poll() is None and time.monotonic() < deadline_s
        time.sleep(POLL_INTERVAL_S)

    process.terminate()
    assert (process.communicate(timeout=TIMEOUT_S)[1], process.returncode) == ("", 0)


def test_the_state_of_a_folder_without_a_cluster_is_not_that_of_another_cluster(tmp_path: Path) -> None:
    """`--directory` with a typing error must not show whatever listens on localhost:9092."""
    done = status("--directory", str(tmp_path))

    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"barnabas cluster status: there is no cluster.json in {tmp_path}\n")
