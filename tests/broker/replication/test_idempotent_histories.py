"""Idempotent producers through random histories of three brokers: each batch is in the log once, and in order, whoever leads.

The faults are those of test_cluster_histories. A producer sends what was not acknowledged again, in order and to whoever takes itself for
the leader, until it is acknowledged: a new leader must know what its predecessor has acknowledged, and what it only has itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from broker.replication.isr.isr_state import ALL_IN_SYNC
from broker.replication.partition import Partition
from protocol.errors import ErrorCode
from storage.log import Log
from tests.broker.replication.cluster import NODE_IDS, Cluster, Node, stored
from tests.broker.replication.test_cluster_histories import History
from tests.broker.replication.world import batch

pytestmark = pytest.mark.long("simulated histories")

SEEDS = 12
ABLATION_SEEDS = 300
IN_FLIGHT_MAX = 5
NEVER_MS = 10**9
RETRIED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,  # of a batch behind one that was refused: clients send both again
}


class Producer:
    """One producer id. `first` is the sequence of its oldest batch that is not acknowledged, `next` that of its next new one."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.first = 0
        self.next = 0
        self.offsets: dict[int, int] = {}
        """Of each batch that was acknowledged, as the first answer said."""

    def send(self, node: Node, *, is_new: bool, errors: Counter[ErrorCode]) -> None:
        """All that is not acknowledged, in order; with `is_new` one more."""
        if is_new and self.next - self.first < IN_FLIGHT_MAX:
            self.next += 1
        for sequence in range(self.first, self.next):
            records = batch(f"{self.producer_id}-{sequence}", producer_id=self.producer_id, producer_epoch=0, base_sequence=sequence)

            def answered(results: list[Any], sequence: int = sequence) -> None:
                errors[results[0].error_code] += 1
                if results[0].error_code is ErrorCode.NONE and not node.is_dead:
                    self.acknowledge(sequence, results[0].base_offset)

            node.replica_manager.append([("a", 0, records)], acks=ALL_IN_SYNC, timeout_ms=NEVER_MS, on_done=answered)

    def acknowledge(self, sequence: int, offset: int) -> None:
        assert self.offsets.setdefault(sequence, offset) == offset, f"{self.producer_id}-{sequence} is at two offsets"
        while self.first in self.offsets:
            self.first += 1


class IdempotentHistory(History):
    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory, seed)
        self.producers = [Producer(producer_id) for producer_id in (7, 8)]
        self.errors: Counter[ErrorCode] = Counter()

    def produce(self) -> None:
        leaders = [node for node in self.cluster.alive if node.partition().is_leader]
        if leaders:
            self.random.choice(self.producers).send(self.random.choice(leaders), is_new=self.random.random() < 0.6, errors=self.errors)

    def check_has_acknowledged(self, node: Node) -> None:
        values = {record.offset: record.value for record in stored(node.log())}
        for producer in self.producers:
            for sequence, offset in producer.offsets.items():
                assert values.get(offset) == f"{producer.producer_id}-{sequence}", f"broker {node.node_id} lacks {sequence} at {offset}"

    def check_end(self) -> None:
        super().check_end()
        for producer in self.producers:  # after the last fault each gets rid of all
            producer.send(self.cluster.leader(), is_new=True, errors=self.errors)
        self.cluster.settle()
        assert self.errors.keys() <= RETRIED | {ErrorCode.NONE}, self.errors
        values = [record.value for record in stored(self.cluster.leader().log())]
        for producer in self.producers:
            own = [value for value in values if value.startswith(f"{producer.producer_id}-")]
            assert own == [f"{producer.producer_id}-{sequence}" for sequence in range(producer.next)]
            assert producer.first == producer.next, "a batch is never acknowledged"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_batch_is_in_the_log_once_and_in_order(tmp_path: Path, seed: int) -> None:
    history = IdempotentHistory(tmp_path, seed)

    history.run()

    assert set(history.cluster.isr()) == set(NODE_IDS)


def test_a_new_leader_knows_the_batch_that_its_predecessor_has_acknowledged(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.create_topic("a", min_insync_replicas="2")
    producer, errors = Producer(7), Counter[ErrorCode]()
    for _ in range(2):
        producer.send(cluster.leader(), is_new=True, errors=errors)
        cluster.settle()
    producer.first = 0  # the answers did not come

    cluster.change_leader("a", 2)
    producer.send(cluster.leader(), is_new=True, errors=errors)
    cluster.settle()

    assert producer.offsets == {0: 0, 1: 1, 2: 2}
    assert errors == {ErrorCode.NONE: 5}
    assert [record.value for record in stored(cluster.nodes[2].log())] == ["7-0", "7-1", "7-2"]


def test_a_follower_forgets_the_batches_that_it_cuts_off(tmp_path: Path) -> None:
    """Else it would take them for duplicates when it leads again, and acknowledge what is nowhere."""
    cluster = Cluster(tmp_path)
    cluster.create_topic("a", min_insync_replicas="2")
    producer, errors = Producer(7), Counter[ErrorCode]()
    producer.send(cluster.leader(), is_new=True, errors=errors)
    cluster.settle()
    old = cluster.nodes[1]
    producer.send(old, is_new=True, errors=errors)  # nobody fetches it
    for message in tuple(cluster.messages):
        cluster.lose(message)
    cluster.change_leader("a", 2)
    cluster.settle()
    assert old.log().log_end_offset == 1

    cluster.change_leader("a", 1)
    producer.send(cluster.leader(), is_new=False, errors=errors)
    cluster.settle()

    assert [record.value for record in stored(cluster.nodes[3].log())] == ["7-0", "7-1"]
    assert producer.offsets == {0: 0, 1: 1}


def followers_forget_producers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "append_as_follower", _forgetting(Log.append_as_follower))


def _forgetting(append: Any) -> Any:
    def append_and_forget(self: Log, *arguments: Any, **more: Any) -> Any:
        appended = append(self, *arguments, **more)
        self.producers._forget_all()
        return appended

    return append_and_forget


def new_leaders_forget_producers(patch: pytest.MonkeyPatch) -> None:
    make_leader = Partition.make_leader

    def forget_and_lead(self: Partition, *arguments: Any, **more: Any) -> bool:
        self.log.producers._forget_all()
        return make_leader(self, *arguments, **more)

    patch.setattr(Partition, "make_leader", forget_and_lead)


def find_failure(directory: Path, seeds: Iterable[int]) -> AssertionError | None:
    for seed in seeds:
        try:
            IdempotentHistory(directory / str(seed), seed).run()
        except AssertionError as error:
            return error
    return None


@pytest.mark.parametrize("ablation", [followers_forget_producers, new_leaders_forget_producers], ids=lambda ablation: ablation.__name__)
def test_without_the_producers_state_batches_are_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ablation: Any) -> None:
    ablation(monkeypatch)

    assert find_failure(tmp_path, range(ABLATION_SEEDS)) is not None
