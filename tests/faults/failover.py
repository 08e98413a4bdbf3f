"""How long a cluster is without a leader: kill -9 (or SIGTERM) of nodes of three, and the time until a producer's next ack.

Real processes and librdkafka as it comes (acks=all, idempotent, its default back-offs). Each round makes a topic whose leader is the node
that is to die, sends a record every few milliseconds, ends the node, and takes the time to the first ack of a record that was sent after
it. Beside it: when a surviving node named the new leader, which is the cluster's share of that time; the rest is the client's. With
`--victim all` every node dies and is started again at once: the start of the processes is part of both times.

    python -m tests.faults.failover --rounds 20 [--victim controller] [--signal TERM] [--log]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

import confluent_kafka

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.cluster import Cluster
from tests.support.wire import WireClient

WAIT_MAX_S = 60.0
SEND_INTERVAL_S = 0.005
LOOK_DELAY_S = 0.045  # a proof takes 50 ms, and what is asked before would be an answer to the producer's question as well
LOOK_INTERVAL_S = 0.005
WARM_ACKS = 50
WARM_S = (0.2, 1.2)
"""Between the first ack and the kill, drawn anew for each round. A client asks for Metadata when it connects, and librdkafka looks at its
topics once a second: a kill at the same moment after that would always meet the same client."""
IN_SYNC_MIN = 2  # min.insync.replicas of tests/support/cluster.py
LOGGED = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) ")
LOG_DELAY_S = 0.2  # a thread writes the log


class Victim(Enum):
    """Whom a round ends. The victim leads the partition that is written to; every node is a broker and a voter."""

    LEADER = "leader"
    CONTROLLER = "controller"
    """The active controller, which leads the partition as well."""
    ALL = "all"
    """Every node; they are started again at once, and the time until they serve counts too."""


@dataclass(slots=True)
class Failover:
    """One round: milliseconds from the signal until a survivor named the new leader, and to the next ack; and what the survivors
    logged, each line with its milliseconds."""

    victim: Victim
    new_leader_ms: float
    next_ack_ms: float
    logged: list[tuple[float, str]] = field(default_factory=list)


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

    def warm_up(self, draw: random.Random) -> None:
        """Write until it is in its stride."""
        self.run_until(lambda: len(self.acked) >= WARM_ACKS)
        end_s = time.monotonic() + draw.uniform(*WARM_S)
        self.run_until(lambda: time.monotonic() >= end_s)

    def first_ack_after(self, moment_s: float) -> float | None:
        """When the first record that was sent after that was acked."""
        return next((acked_s for sent_s, acked_s in self.acked if sent_s > moment_s), None)

    def close(self) -> None:
        self._producer.flush(WAIT_MAX_S)


class LeaderLook(threading.Thread):
    """Asks the survivors, again and again, who leads; `found_s` is when the first named another leader than `victim_id`."""

    def __init__(self, cluster: Cluster, topic: str, victim_id: int) -> None:
        super().__init__(daemon=True)
        self.found_s: float | None = None
        self._topic = topic
        self._victim_id = victim_id
        survivors = [node for node_id, node in cluster.nodes.items() if node_id != victim_id]
        self._clients = [WireClient(node.host, node.port) for node in survivors]

    def run(self) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)])
        deadline_s = time.monotonic() + WAIT_MAX_S
        time.sleep(LOOK_DELAY_S)
        while time.monotonic() < deadline_s and self.found_s is None:
            for client in self._clients:
                leader_id = client.request(request, 12).topics[0].partitions[0].leader_id
                if leader_id not in (-1, self._victim_id):
                    self.found_s = time.monotonic()
                    break
            time.sleep(LOOK_INTERVAL_S)
        for client in self._clients:
            client.close()


class ReturnLook(threading.Thread):
    """Asks all nodes, which may not listen yet; `found_s` is when the first named a leader and enough replicas in sync for acks=all."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__(daemon=True)
        self.found_s: float | None = None
        self._cluster = cluster
        self._topic = topic

    def run(self) -> None:
        deadline_s = time.monotonic() + WAIT_MAX_S
        while time.monotonic() < deadline_s and self.found_s is None:
            with contextlib.suppress(OSError, EOFError, LookupError):
                partition = self._cluster.partition(self._topic)
                if partition.leader_id != -1 and len(partition.isr_nodes) >= IN_SYNC_MIN:
                    self.found_s = time.monotonic()
            time.sleep(LOOK_INTERVAL_S)


def run_round(
    cluster: Cluster, topic: str, victim: Victim, how: signal.Signals, client: Mapping[str, Any], draw: random.Random
) -> Failover:
    """One failover; the node is back in the ISR of its topic when this returns."""
    controller_id = cluster.controller_id()
    victim_id = controller_id if victim is Victim.CONTROLLER else next(node_id for node_id in cluster.nodes if node_id != controller_id)
    create_topic(cluster, topic, [victim_id, *(node_id for node_id in cluster.nodes if node_id != victim_id)])
    writer = Writer(cluster.bootstrap, topic, client)
    writer.warm_up(draw)
    look = LeaderLook(cluster, topic, victim_id)

    killed_wall_s, killed_s = time.time(), time.monotonic()
    os.kill(cluster.nodes[victim_id].pid, how)
    look.start()
    writer.run_until(lambda: writer.first_ack_after(killed_s) is not None and look.found_s is not None)
    acked_s = writer.first_ack_after(killed_s)
    assert acked_s is not None and look.found_s is not None
    result = Failover(victim, (look.found_s - killed_s) * 1000, (acked_s - killed_s) * 1000)
    writer.close()
    assert not writer.errors, f"records were lost: {writer.errors[:3]}"
    cluster.nodes[victim_id].wait(WAIT_MAX_S)
    time.sleep(LOG_DELAY_S)
    result.logged = logged_since(cluster, killed_wall_s, except_id=victim_id)
    cluster.start(victim_id)
    cluster.wait_in_sync()
    return result


def run_round_of_all(cluster: Cluster, topic: str, how: signal.Signals, client: Mapping[str, Any], draw: random.Random) -> Failover:
    """The end of all nodes and their start; all are in the ISR of the topic when this returns."""
    create_topic(cluster, topic, tuple(cluster.nodes))
    writer = Writer(cluster.bootstrap, topic, client)
    writer.warm_up(draw)
    look = ReturnLook(cluster, topic)

    killed_wall_s, killed_s = time.time(), time.monotonic()
    for node in cluster.nodes.values():
        os.kill(node.pid, how)
    for node in cluster.nodes.values():
        node.wait(WAIT_MAX_S)
        node.launch()
    look.start()
    writer.run_until(lambda: writer.first_ack_after(killed_s) is not None and look.found_s is not None)
    acked_s = writer.first_ack_after(killed_s)
    assert acked_s is not None and look.found_s is not None
    result = Failover(Victim.ALL, (look.found_s - killed_s) * 1000, (acked_s - killed_s) * 1000)
    writer.close()
    assert not writer.errors, f"records were lost: {writer.errors[:3]}"
    for node in cluster.nodes.values():
        node.wait_ready()
    cluster.wait_in_sync()
    result.logged = logged_since(cluster, killed_wall_s)
    return result


def create_topic(cluster: Cluster, name: str, replicas: Sequence[int]) -> None:
    """One partition on these nodes, led by the first; returns once all of them are in sync."""
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])

    def is_created() -> bool:
        (answer,) = cluster.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 5).topics
        return answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    cluster.wait_for(is_created, f"topic {name} to be created")
    cluster.wait_in_sync(name)


def logged_since(cluster: Cluster, wall_s: float, *, except_id: int | None = None) -> list[tuple[float, str]]:
    """The lines of the other nodes since then, with the milliseconds that had passed, in the order of time."""
    found = []
    for node_id, node in cluster.nodes.items():
        for line in [] if node_id == except_id else node.log_path.read_text().splitlines():
            stamp = LOGGED.match(line)
            if stamp is not None:
                at_ms = (datetime.fromisoformat(stamp.group(1)).timestamp() - wall_s) * 1000 + int(stamp.group(2))
                if at_ms >= 0:
                    found.append((at_ms, f"node {node_id}: {line[stamp.end() :]}"))
    return sorted(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--victim", choices=[each.value for each in Victim], action="append", help="may be given again; default: leader and controller"
    )
    parser.add_argument("--signal", choices=["KILL", "TERM"], default="KILL")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the nodes")
    parser.add_argument("--client", action="append", default=[], metavar="NAME=VALUE", help="a setting of the producer")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills")
    parser.add_argument("--log", action="store_true", help="show what the nodes logged in each round")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    settings, client = (dict(each.split("=", 1) for each in given) for given in (arguments.set, arguments.client))
    how = signal.Signals[f"SIG{arguments.signal}"]
    with tempfile.TemporaryDirectory(prefix="failover-") as directory, Cluster(Path(directory), settings=settings) as cluster:
        for victim in [Victim(name) for name in arguments.victim or [Victim.LEADER.value, Victim.CONTROLLER.value]]:
            rounds = []
            for number in range(arguments.rounds):
                topic = f"{victim.value}-{number}"
                is_of_all = victim is Victim.ALL
                rounds.append(
                    run_round_of_all(cluster, topic, how, client, draw)
                    if is_of_all
                    else run_round(cluster, topic, victim, how, client, draw)
                )
                _tell_round(number, rounds[-1], with_log=arguments.log)
            _tell_all(how.name, victim.value, rounds, as_json=arguments.json)
    return 0


def _tell_round(number: int, done: Failover, *, with_log: bool) -> None:
    line = f"{done.victim.value} {number}: new leader after {done.new_leader_ms:.0f} ms, next ack after {done.next_ack_ms:.0f} ms"
    print(line, file=sys.stderr, flush=True)
    for at_ms, logged in done.logged if with_log else []:
        if at_ms <= done.next_ack_ms:
            print(f"    {at_ms:6.0f} ms  {logged}", file=sys.stderr)


def _tell_all(how: str, victim: str, rounds: Sequence[Failover], *, as_json: bool) -> None:
    figures = {}
    for name, times_ms in (
        ("new_leader", [each.new_leader_ms for each in rounds]),
        ("next_ack", [each.next_ack_ms for each in rounds]),
    ):
        figures[name] = {"p50_ms": statistics.median(times_ms), "max_ms": max(times_ms), "all_ms": times_ms}
    if as_json:
        print(json.dumps({"signal": how, "victim": victim, **figures}))
        return
    for name, found in figures.items():
        print(f"{how} of the {victim}: {name} p50 {found['p50_ms']:.0f} ms, max {found['max_ms']:.0f} ms of {len(rounds)} rounds")


if __name__ == "__main__":
    sys.exit(main())
