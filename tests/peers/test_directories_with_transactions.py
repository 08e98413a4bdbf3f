"""Log directories with committed, aborted, prepared and open transactions go from Apache Kafka to ours, and from ours to Kafka.

Two nodes of one kind: a broker that coordinates, and the controller, which is a broker too. The latter is killed before two transactions
are ended, so that their markers for its partition are not written: they stay prepared. The nodes of the other kind, on the same
directories, write these markers and end the open transaction.

The coordinator of the other kind starts last: if a partition has no leader, a Kafka node that coordinates takes it for deleted, and never
writes its markers (KAFKA-20734).
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ErrorCode
from tests.clients.transactional import read
from tests.support.cluster import BARNABAS, BROKER_ONLY, KAFKA, KINDS, Cluster
from tests.support.java_host import JavaHost
from tests.support.kafka import KafkaServer, missing_java
from tests.support.raw_transactions import add_partition, end_transaction, init_producer_id, last_stable_offset, produce, state_of
from tests.support.requirements import needs

COORDINATOR, CONTROLLER = 1, 2
LEADERS = {"here": COORDINATOR, "there": CONTROLLER}
"""The node that has partition 0 of each topic."""
IDS = ("committed", "aborted", "to-commit", "to-abort", "open")
SETTINGS = {
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
}
STATE_TOPIC = {"cleanup.policy": "compact", "compression.type": "uncompressed"}
OPEN_AT = 6  # the offset of the open transaction: two records and their markers come before it, and two that are prepared
TIMEOUT_MS = 900_000
STATUS = {"Ongoing": 1, "PrepareCommit": 2, "PrepareAbort": 3, "CompleteCommit": 4, "CompleteAbort": 5}


class Transactions:
    """The transactions of IDS on a cluster, which writes one record of each into both topics."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.ask = functools.partial(cluster.ask_node, COORDINATOR)
        self._producers: dict[str, tuple[int, int]] = {}

    def make(self) -> None:
        """Those that are to be prepared and to stay open are open when this returns, the open one last in both partitions."""
        self.cluster.create_topic("__transaction_state", assignment=[[COORDINATOR]], config=STATE_TOPIC)
        for topic, leader in LEADERS.items():
            self.cluster.create_topic(topic, assignment=[[leader]])
        for each in IDS:
            producer = self._producers[each] = self.cluster.wait_for(
                functools.partial(init_producer_id, self.ask, each, TIMEOUT_MS), f"the producer of {each}"
            )
            for topic, leader in LEADERS.items():
                add_partition(self.ask, each, producer, topic)
                asked = functools.partial(self.cluster.ask_node, leader)
                assert produce(asked, each, producer, topic, value=each.encode()) == ErrorCode.NONE
            if each in ("committed", "aborted"):
                self.end(each, is_committed=each == "committed")
                self.wait("CompleteCommit" if each == "committed" else "CompleteAbort", each)

    def prepare(self) -> None:
        self.cluster.kill(CONTROLLER)
        self.end("to-commit", is_committed=True)
        self.end("to-abort", is_committed=False)
        assert self.states() == {"committed": "CompleteCommit", "aborted": "CompleteAbort", **PREPARED}

    def end(self, transactional_id: str, *, is_committed: bool) -> None:
        assert end_transaction(self.ask, transactional_id, self._producers[transactional_id], is_committed=is_committed) == ErrorCode.NONE

    def wait(self, state: str, transactional_id: str) -> None:
        self.cluster.wait_for(lambda: state_of(self.ask, transactional_id) == state, f"{transactional_id} to be {state}")

    def states(self) -> dict[str, str]:
        return {each: state_of(self.ask, each) for each in IDS}


PREPARED = {"to-commit": "PrepareCommit", "to-abort": "PrepareAbort", "open": "Ongoing"}


def change_kind(cluster: Cluster, kind: str) -> None:
    """The other kind on the same directories, with the same ids, ports and settings."""
    for node_id, old in cluster.nodes.items():
        new = KINDS[kind](old.directory, old.settings)
        new.name, new.host, new.port = f"{kind} node {node_id}", old.host, old.port
        if isinstance(new, KafkaServer):
            new.cluster_id, new.format_arguments = cluster.cluster_id, ("--ignore-formatted",)
        cluster.nodes[node_id] = new
    cluster.start(CONTROLLER)
    cluster.wait_for(lambda: cluster.partition("there").leader_id == CONTROLLER, "a leader of the controller's partition")
    cluster.start(COORDINATOR)


def dump(java_host: JavaHost, directory: Path, suffix: str, *options: str) -> str:
    """What kafka-dump-log prints of these files of a partition."""
    files = ",".join(str(path) for path in sorted(directory.glob(f"*{suffix}")))
    return java_host.tool("DumpLogSegments", "--files", files, *options).stdout


def last_states(java_host: JavaHost, data_dir: Path) -> dict[str, Mapping[str, Any]]:
    """The last value of each id in the transaction state log, as kafka-dump-log decodes it: {"version": …, "data": …}."""
    printed = dump(java_host, data_dir / "__transaction_state-0", ".log", "--transaction-log-decoder", "--skip-record-metadata")
    found = {}
    for line in printed.splitlines():
        if match := re.search(r"(\{.*\}) *(?:payload: *)?(\{.*\})$", line.replace(" payload: ", " ")):
            key, value = (json.loads(each) for each in match.groups())
            found[key["data"]["transactionalId"]] = value
    return found


@needs(missing_java())
@pytest.mark.timeout(600)
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("kinds", [(KAFKA, BARNABAS), (BARNABAS, KAFKA)], ids=["from Kafka", "from ours"])
def test_the_other_kind_ends_what_was_prepared_and_what_is_open(
    tmp_path: Path, java_host: JavaHost, kinds: tuple[str, str], level: int
) -> None:
    before, after = kinds
    words = ("--release-version", "4.0-IV3", "--feature", f"transaction.version={level}")
    roles = {COORDINATOR: {"process.roles": BROKER_ONLY}}
    cluster = Cluster(tmp_path, [before] * 2, settings=SETTINGS, node_settings=roles, format_words=words)
    try:
        cluster.start()
        transactions = Transactions(cluster)
        transactions.make()
        transactions.prepare()
        cluster.kill()
        change_kind(cluster, after)

        transactions.wait("CompleteCommit", "to-commit")
        transactions.wait("CompleteAbort", "to-abort")
        assert state_of(transactions.ask, "open") == "Ongoing"
        for topic, leader in LEADERS.items():
            assert read(cluster, topic, count=2) == ["committed", "to-commit"]
            assert read(cluster, topic, isolation="read_uncommitted", count=5) == sorted(IDS)
            assert last_stable_offset(functools.partial(cluster.ask_node, leader), topic) == OPEN_AT
        transactions.end("open", is_committed=True)
        transactions.wait("CompleteCommit", "open")
        for topic in LEADERS:
            assert read(cluster, topic, count=3) == ["committed", "open", "to-commit"]
        cluster.stop(COORDINATOR)  # a Kafka broker waits for its controller
        cluster.stop(CONTROLLER)
    finally:
        cluster.close()

    states = last_states(java_host, cluster.nodes[COORDINATOR].data_dir)
    assert {each: states[each]["data"]["transactionStatus"] for each in IDS} == {
        each: STATUS["CompleteAbort" if "abort" in each else "CompleteCommit"] for each in IDS
    }
    assert {value["version"] for value in states.values()} == {"1" if level else "0"}
    for topic, leader in LEADERS.items():
        directory = cluster.nodes[leader].data_dir / f"{topic}-0"
        markers = Counter(re.findall(r"endTxnMarker: (\w+)", dump(java_host, directory, ".log", "--print-data-log")))
        # At most two more: the coordinator that loads a prepared transaction does not know which partitions have its marker.
        assert 3 <= markers["COMMIT"] <= 4 and 2 <= markers["ABORT"] <= 3
        assert len(re.findall(r"producerId: \d+ firstOffset: (\d+)", dump(java_host, directory, ".txnindex"))) == 2
