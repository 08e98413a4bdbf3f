"""How long a cluster is without a leader: kill -9 (or SIGTERM) of nodes of three, and the time until a producer's next ack.

Real processes and librdkafka as it comes (acks=all, idempotent, its default back-offs). Each round makes a topic whose leader is the node
that is to die, sends a record every few milliseconds, ends the node, and takes the time to the first ack of a record that was sent
after it. The nodes' logs say where that time went. `python -m tests.faults.failover --rounds 20`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess
from tests.support.process import free_port

CLUSTER_ID = "3Db5QLSqSZieL3rJBUUegA"
NODE_IDS = (1, 2, 3)
WAIT_MAX_S = 60.0
SEND_INTERVAL_S = 0.005
WARM_ACKS = 50
LED_EPOCH = re.compile(r"leading epoch (\d+) of the metadata quorum")
LOGGED = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) ")


class Victim(Enum):
    """Whom a round ends. It leads the partition that is written to; every node is a broker and a voter."""

    LEADER = "leader"
    CONTROLLER = "controller"
    """The active controller, which leads the partition as well."""


@dataclass(slots=True)
class Failover:
    """One round: milliseconds from the signal to the next ack, and what the surviving nodes logged meanwhile, each with its
    milliseconds."""

    victim: Victim
    next_ack_ms: float
    logged: list[tuple[float, str]] = field(default_factory=list)


class ThreeNodes:
    """Three combined nodes on this machine. Owns the processes."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        ports = {node_id: free_port() for node_id in NODE_IDS}
        voters = ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in ports.items())
        self.nodes = {node_id: self._make(directory, node_id, voters, port, settings) for node_id, port in ports.items()}

    def _make(self, directory: Path, node_id: int, voters: str, port: int, settings: Mapping[str, str]) -> BrokerProcess:
        quorum = {"node.id": str(node_id), "controller.quorum.voters": voters, "controller.listener.names": "CONTROLLER"}
        replicated = {"offsets.topic.replication.factor": "3", "min.insync.replicas": "2"}
        node = BrokerProcess(directory / f"node{node_id}", {**quorum, **replicated, **settings})
        node.settings["listeners"] = f"PLAINTEXT://{node.host}:{node.port},CONTROLLER://{node.host}:{port}"
        command = node.command()
        command[command.index("serve")] = "format"
        checkout = Path(__file__).resolve().parents[2]
        subprocess.run([*command, "-t", CLUSTER_ID], env=node.environment(), cwd=checkout, capture_output=True, check=True)
        return node

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def start(self) -> None:
        """Together: none is ready before most of them are there."""
        with ThreadPoolExecutor(len(self.nodes)) as threads:
            list(threads.map(BrokerProcess.start, self.nodes.values()))

    def stop(self) -> None:
        for node in self.nodes.values():
            if node.is_running:
                node.kill()

    def active_controller(self) -> int:
        """The node that began to lead the newest epoch."""
        led = {node_id: [int(epoch) for epoch in LED_EPOCH.findall(node.log_path.read_text())] for node_id, node in self.nodes.items()}
        return max(self.nodes, key=lambda node_id: max(led[node_id], default=0))

    def logged_since(self, wall_s: float, *, except_id: int) -> list[tuple[float, str]]:
        """The lines of the other nodes since then, with the milliseconds that had passed, in the order of time."""
        found = []
        for node_id, node in self.nodes.items():
            if node_id == except_id:
                continue
            for line in node.log_path.read_text().splitlines():
                stamp = LOGGED.match(line)
                if stamp is None:
                    continue
                at_s = datetime.fromisoformat(stamp.group(1)).timestamp() + int(stamp.group(2)) / 1000
                if at_s >= wall_s:
                    found.append(((at_s - wall_s) * 1000, f"node {node_id}: {line[stamp.end() :]}"))
        return sorted(found)


class Writer:
    """Sends records to one partition, one every SEND_INTERVAL_S, and notes when each was sent and acked."""

    def __init__(self, bootstrap: str, topic: str, client: Mapping[str, Any]) -> None:
        self.acked: list[tuple[float, float]] = []  # sent and acked, by time.monotonic()
        self.errors: list[str] = []
        self._topic = topic
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0, **client}
        self._producer = confluent_kafka.Producer(settings)
        self._sent = 0

    def run_until(self, is_over: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + WAIT_MAX_S
        while not is_over():
            assert time.monotonic() < deadline_s, f"no progress, last errors: {self.errors[-3:]}"
            sent_s = time.monotonic()
            value = str(self._sent).encode()
            self._producer.produce(self._topic, value, partition=0, on_delivery=lambda error, _, sent_s=sent_s: self._note(sent_s, error))
            self._sent += 1
            self._producer.poll(SEND_INTERVAL_S)

    def _note(self, sent_s: float, error: Any) -> None:
        if error is None:
            self.acked.append((sent_s, time.monotonic()))
        else:
            self.errors.append(str(error))

    def first_ack_after(self, moment_s: float) -> float | None:
        """When the first record that was sent after that was acked."""
        return next((acked_s for sent_s, acked_s in self.acked if sent_s > moment_s), None)

    def close(self) -> None:
        self._producer.flush(WAIT_MAX_S)


def run_round(cluster: ThreeNodes, number: int, victim: Victim, how: signal.Signals, client: Mapping[str, Any]) -> Failover:
    """One failover; the node is back in the ISR of its topic when this returns."""
    controller = cluster.active_controller()
    victim_id = controller if victim is Victim.CONTROLLER else next(node_id for node_id in NODE_IDS if node_id != controller)
    replicas = [victim_id, *(node_id for node_id in NODE_IDS if node_id != victim_id)]
    topic = f"failover-{number}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, replica_assignment=[replicas])])[topic].result(WAIT_MAX_S)
    _wait_for_isr(admin, topic)
    writer = Writer(cluster.bootstrap, topic, client)
    writer.run_until(lambda: len(writer.acked) >= WARM_ACKS)

    node = cluster.nodes[victim_id]
    killed_wall_s, killed_s = time.time(), time.monotonic()
    os.kill(node.pid, how)
    writer.run_until(lambda: writer.first_ack_after(killed_s) is not None)
    acked_s = writer.first_ack_after(killed_s)
    assert acked_s is not None
    result = Failover(victim, (acked_s - killed_s) * 1000)
    writer.close()
    assert not writer.errors, f"records were lost: {writer.errors[:3]}"
    node.wait(WAIT_MAX_S)
    time.sleep(0.2)  # the log's writer is a thread
    result.logged = cluster.logged_since(killed_wall_s, except_id=victim_id)
    node.start()
    _wait_for_isr(admin, topic)
    return result


def _wait_for_isr(admin: AdminClient, topic: str) -> None:
    deadline_s = time.monotonic() + WAIT_MAX_S
    while True:
        found = admin.list_topics(topic, timeout=10.0).topics[topic].partitions.get(0)
        if found is not None and len(found.isrs) == len(NODE_IDS):
            return
        assert time.monotonic() < deadline_s, f"{topic} has not all replicas in sync"
        time.sleep(0.1)


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--victim", choices=[each.value for each in Victim], action="append", help="may be given twice; default both")
    parser.add_argument("--signal", choices=["KILL", "TERM"], default="KILL")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the nodes")
    parser.add_argument("--client", action="append", default=[], metavar="NAME=VALUE", help="a setting of the producer")
    parser.add_argument("--log", action="store_true", help="show what the nodes logged in each round")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    victims = [Victim(name) for name in arguments.victim or [each.value for each in Victim]]
    how = signal.Signals[f"SIG{arguments.signal}"]
    settings, client = (dict(each.split("=", 1) for each in given) for given in (arguments.set, arguments.client))
    with tempfile.TemporaryDirectory(prefix="failover-") as directory:
        cluster = ThreeNodes(Path(directory), settings)
        try:
            cluster.start()
            for victim in victims:
                _report(cluster, victim, how, client, arguments)
        finally:
            cluster.stop()
    return 0


def _report(cluster: ThreeNodes, victim: Victim, how: signal.Signals, client: Mapping[str, Any], arguments: Any) -> None:
    times_ms = []
    for number in range(arguments.rounds):
        done = run_round(cluster, number if victim is Victim.LEADER else 1000 + number, victim, how, client)
        times_ms.append(done.next_ack_ms)
        print(f"{victim.value} {number}: {done.next_ack_ms:.0f} ms", file=sys.stderr, flush=True)
        if arguments.log:
            for at_ms, line in done.logged:
                if at_ms <= done.next_ack_ms:
                    print(f"    {at_ms:6.0f} ms  {line}", file=sys.stderr)
    p50_ms, max_ms = statistics.median(times_ms), max(times_ms)
    p95_ms = _percentile(times_ms, 0.95)
    if arguments.json:
        figures = {"p50_ms": p50_ms, "p95_ms": p95_ms, "max_ms": max_ms, "all_ms": times_ms}
        print(json.dumps({"victim": victim.value, "signal": how.name, **figures}))
    else:
        print(f"{how.name} of the {victim.value}: p50 {p50_ms:.0f} ms, p95 {p95_ms:.0f} ms, max {max_ms:.0f} ms of {len(times_ms)} rounds")


if __name__ == "__main__":
    sys.exit(main())
