"""The coordinator over real replicas and real files: what it stored is there after a kill, and Apache Kafka's layout is kept."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from broker.coordination.coordinator_log import LOAD_CHUNK_BYTES, ReplicatedCoordinatorLog
from broker.groups.coordinator import GroupCoordinator
from broker.groups.group_config import GroupConfig
from broker.loop.blocking import RunBlocking
from broker.loop.deferred import Deferred
from broker.loop.turns import at_once
from broker.metadata.cluster_state import ClusterState
from broker.metadata.image import GROUP_METADATA_TOPIC
from broker.metadata.metadata_cache import MetadataCache
from broker.network.answer_size import AnswerSize
from broker.observability.metrics import Metrics
from broker.replication.fetch.fetch_data import FetchIsolation, FetchParams, FetchTarget
from broker.replication.replica_manager import ReplicaManager
from config.server import ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from protocol.messages.stored.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.records import SimpleRecord
from storage.log import Log
from storage.log_manager import LogManager
from storage.markers import TransactionMarker
from storage.page_cache import ColdRead
from storage.verification import VerificationGuard
from tests.broker.replication.world import ManualExecutor
from tests.storage.conftest import write_checkpoints
from tests.support.clock import ManualClock

NODE_ID = 1
OFFSETS_TOPIC_ID = b"offsets-topic-id"


class Node:
    """A broker's coordinator with everything below it, in `directory`. `kill` lets another Node open the same files."""

    def __init__(
        self, directory: Path, *, replicas: tuple[int, ...] = (NODE_ID,), leader_epoch: int = 0, run_blocking: RunBlocking | None = None
    ) -> None:
        config = ServerConfig(log_dirs=(str(directory),))
        self.clock = ManualClock()
        self.metadata = MetadataCache(ClusterState(), cluster_id="c", node_id=NODE_ID, config=config)
        self.log_manager = LogManager(config.log_dirs, random_source=random.Random(1))
        self.log_manager.open(config_of=self.metadata.log_config, now_ms=self.clock.now_ms())
        self.replica_manager = ReplicaManager(
            config=config,
            node_id=NODE_ID,
            clock=self.clock,
            metrics=Metrics(),
            metadata=self.metadata,
            log_manager=self.log_manager,
            run_blocking=lambda function, *arguments: pytest.fail("nothing here is flushed"),
        )
        self.log = ReplicatedCoordinatorLog(
            GROUP_METADATA_TOPIC, self.replica_manager, self.metadata, default_partition_count=50, run_blocking=run_blocking
        )
        self.coordinator = GroupCoordinator(GroupConfig(), self.log, self.clock, random.Random(1), self.metadata)
        self.coordinator.start()
        self.metadata.subscribe(self.replica_manager.apply)
        self.metadata.subscribe(self.coordinator.on_metadata_delta)
        partition = PartitionRecord(
            partition_id=0,
            topic_id=OFFSETS_TOPIC_ID,
            replicas=list(replicas),
            isr=list(replicas),
            leader=NODE_ID,
            leader_epoch=leader_epoch,
            partition_epoch=leader_epoch,
        )
        self.metadata.apply_committed([TopicRecord(name=GROUP_METADATA_TOPIC, topic_id=OFFSETS_TOPIC_ID), partition])
        self.clock.advance(0)

    def kill(self) -> None:
        """Nothing is flushed or closed; only the lock goes, as with the process."""
        self.log_manager.unlock()

    def commit(self, *offsets: int) -> list[Any]:
        """Commits `offsets` for partitions 0, 1, … of t; a list that gets the answer."""
        partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=offset) for index, offset in enumerate(offsets)]
        request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])
        answers: list[Any] = []
        self.coordinator.commit_offsets(request, 8).when_done(answers.append)
        return answers

    def commit_in_transaction(self, offset: int, producer_id: int = 9, *, epoch: int = 0, guard: Any = "asked for") -> list[Any]:
        """A TxnOffsetCommit for t-0; the transaction coordinator is asked, and says yes, unless there is a guard."""
        topic = TxnOffsetCommitRequestTopic(
            name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
        )
        request = TxnOffsetCommitRequest(transactional_id="x", group_id="g", producer_id=producer_id, producer_epoch=epoch, topics=[topic])
        if guard == "asked for":
            guard = self.coordinator.start_verification(request, supports_epoch_bump=False)
        answers: list[Any] = []
        committed = self.coordinator.commit_transactional_offsets(request, guard)
        assert isinstance(committed, Deferred)
        committed.when_done(answers.append)
        return answers

    def end_transaction(self, producer_id: int = 9, *, epoch: int = 1, is_commit: bool = True, coordinator_epoch: int = 0) -> list[Any]:
        answers: list[Any] = []
        marker = TransactionMarker(producer_id, epoch, coordinator_epoch, is_commit, 2)
        self.coordinator.complete_transaction(0, marker).when_done(answers.append)
        return answers

    def stable(self) -> list[Any]:
        """The offset of t-0, or its error, that a read_committed consumer gets."""
        asked = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
        reply = at_once(self.coordinator.offset_reads(AnswerSize(), require_stable=True).read(asked))
        return [found.error_code or found.committed_offset for topic in reply.topics for found in topic.partitions]

    def follower_fetches(self, offset: int) -> None:
        """Broker 2 shows that it has everything below `offset`."""
        target = FetchTarget(GROUP_METADATA_TOPIC, 0, offset, 1 << 20, log_start_offset=0)
        params = FetchParams(2, -1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation=FetchIsolation.LOG_END)
        self.replica_manager.reader.read_one(params, target, may_wait_for_disk=True, is_arrival=True)

    def committed(self) -> list[int]:
        reply = at_once(
            self.coordinator.offset_reads(AnswerSize(), require_stable=False).read(OffsetFetchRequestGroup(group_id="g", topics=None))
        )
        return [found.committed_offset for topic in reply.topics for found in topic.partitions]


def code_of(answers: list[Any]) -> int:
    (answer,) = answers
    code: int = answer.topics[0].partitions[0].error_code
    return code


def test_offsets_of_transactions_survive_kills(tmp_path: Path):
    node = Node(tmp_path)
    node.commit(5)
    assert code_of(node.commit_in_transaction(7)) == ErrorCode.NONE
    assert node.stable() == [ErrorCode.UNSTABLE_OFFSET_COMMIT]
    node.kill()

    second = Node(tmp_path, leader_epoch=1)
    assert (second.committed(), second.stable()) == ([5], [ErrorCode.UNSTABLE_OFFSET_COMMIT])
    assert second.end_transaction() == [ErrorCode.NONE]
    assert second.stable() == [7]
    second.commit_in_transaction(8, epoch=1)
    second.kill()

    third = Node(tmp_path, leader_epoch=2)
    assert third.end_transaction(epoch=2, is_commit=False) == [ErrorCode.NONE]
    assert third.stable() == [7]
    third.kill()
    assert Node(tmp_path, leader_epoch=3).stable() == [7]


def test_a_commit_in_a_transaction_that_nobody_vouched_for_is_refused(tmp_path: Path):
    node = Node(tmp_path)

    assert code_of(node.commit_in_transaction(7, guard=None)) == ErrorCode.INVALID_TXN_STATE
    assert code_of(node.commit_in_transaction(7, guard=VerificationGuard())) == ErrorCode.INVALID_TXN_STATE
    assert node.replica_manager.get_partition(GROUP_METADATA_TOPIC, 0).log.log_end_offset == 0
    assert code_of(node.commit_in_transaction(7)) == ErrorCode.NONE
    assert code_of(node.commit_in_transaction(8, guard=None)) == ErrorCode.NONE


def test_an_answer_that_comes_after_the_marker_does_not_count(tmp_path: Path):
    node = Node(tmp_path)
    guard = node.log.start_verification(0, 9, 0, supports_epoch_bump=False)
    node.end_transaction(epoch=0, is_commit=False)

    assert code_of(node.commit_in_transaction(7, guard=guard)) == ErrorCode.INVALID_TXN_STATE


def test_a_late_marker_ends_nothing(tmp_path: Path):
    node = Node(tmp_path)
    node.commit_in_transaction(7, epoch=3)

    assert node.end_transaction(epoch=3) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert node.stable() == [ErrorCode.UNSTABLE_OFFSET_COMMIT]
    assert node.end_transaction(epoch=4, coordinator_epoch=6) == [ErrorCode.NONE]
    assert node.end_transaction(epoch=5, coordinator_epoch=5) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
    assert node.end_transaction(epoch=4, coordinator_epoch=6) == [ErrorCode.NONE], "a retry"
    with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH"):
        node.commit_in_transaction(8, epoch=3)


def test_a_marker_is_answered_when_the_followers_have_it(tmp_path: Path):
    node = Node(tmp_path, replicas=(1, 2))
    committed = node.commit_in_transaction(7)
    node.follower_fetches(1)
    assert code_of(committed) == ErrorCode.NONE

    ended = node.end_transaction()

    assert (ended, node.committed()) == ([], [])
    node.follower_fetches(2)
    assert (ended, node.committed()) == ([ErrorCode.NONE], [7])


def test_a_marker_in_flight_is_for_the_next_leader_when_leadership_goes(tmp_path: Path):
    node = Node(tmp_path, replicas=(1, 2))
    ended = node.end_transaction()

    node.metadata.apply_committed([PartitionChangeRecord(partition_id=0, topic_id=OFFSETS_TOPIC_ID, leader=2)])

    assert ended == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert node.end_transaction() == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_committed_offsets_survive_a_kill(tmp_path: Path):
    node = Node(tmp_path)
    node.commit(7, 8)
    node.commit(9)
    node.kill()

    reopened = Node(tmp_path, leader_epoch=1)

    assert reopened.committed() == [9, 8]


def test_log_that_is_not_in_memory_is_read_in_by_a_thread_while_others_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    node = Node(tmp_path)
    node.commit(7)
    node.kill()
    file = tmp_path / "file"
    file.write_bytes(b"x")
    missing = [ColdRead(os.open(file, os.O_RDONLY), 0, 1)]
    read = Log.read

    def read_cold_once(self: Log, *arguments: Any, **more: Any) -> Any:
        if missing:
            raise missing.pop()
        return read(self, *arguments, **more)

    monkeypatch.setattr(Log, "read", read_cold_once)
    executor = ManualExecutor()
    reopened = Node(tmp_path, leader_epoch=1, run_blocking=executor)
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        reopened.committed()

    executor.run()
    reopened.clock.advance(0)

    assert reopened.committed() == [7]


def test_log_larger_than_a_chunk_is_loaded_whole(tmp_path: Path):
    node = Node(tmp_path)
    rounds = 2 * LOAD_CHUNK_BYTES // (100 * 50)
    for offset in range(rounds):
        node.commit(*[offset] * 100)
    node.kill()

    reopened = Node(tmp_path, leader_epoch=1)
    reopened.clock.advance(0)

    assert node.replica_manager.get_partition(GROUP_METADATA_TOPIC, 0).log.log_end_offset == rounds * 100
    assert reopened.committed() == [rounds - 1] * 100


def test_append_with_followers_is_committed_when_they_have_it(tmp_path: Path):
    node = Node(tmp_path, replicas=(1, 2))

    answers = node.commit(7)

    assert answers == []
    assert node.committed() == []
    node.follower_fetches(1)
    assert answers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert node.committed() == [7]


def test_append_in_flight_is_refused_when_leadership_goes(tmp_path: Path):
    node = Node(tmp_path, replicas=(1, 2))
    answers = node.commit(7)

    node.metadata.apply_committed([PartitionChangeRecord(partition_id=0, topic_id=OFFSETS_TOPIC_ID, leader=2)])

    assert answers[0].topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR


def test_commits_of_one_window_are_committed_in_order_as_followers_get_them(tmp_path: Path):
    node = Node(tmp_path, replicas=(1, 2))
    first, second = node.commit(7), node.commit(8)

    node.follower_fetches(1)
    assert (len(first), len(second), node.committed()) == (1, 0, [7])
    node.follower_fetches(2)

    assert (len(second), node.committed()) == (1, [8])


def test_what_followers_lack_at_the_start_is_read_when_they_have_it(tmp_path: Path):
    node = Node(tmp_path, replicas=(1, 2))
    node.commit(7)
    node.follower_fetches(1)
    write_checkpoints(node.log_manager)
    node.commit(8)
    node.kill()

    reopened = Node(tmp_path, replicas=(1, 2), leader_epoch=1)
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        reopened.committed()
    reopened.follower_fetches(2)

    assert reopened.committed() == [8]


def test_what_followers_lack_at_the_start_for_long_is_not_read(tmp_path: Path):
    node = Node(tmp_path, replicas=(1, 2))
    node.commit(7)
    node.follower_fetches(1)
    write_checkpoints(node.log_manager)
    node.commit(8)
    node.kill()

    reopened = Node(tmp_path, replicas=(1, 2), leader_epoch=1)
    reopened.clock.advance(GroupConfig().commit_timeout_ms)
    assert reopened.committed() == [7]
    reopened.follower_fetches(2)

    assert reopened.committed() == [8]


def test_what_followers_lack_at_the_start_is_forgotten_when_leadership_goes(tmp_path: Path):
    node = Node(tmp_path, replicas=(1, 2))
    node.commit(7)
    node.kill()
    reopened = Node(tmp_path, replicas=(1, 2), leader_epoch=1)

    reopened.metadata.apply_committed([PartitionChangeRecord(partition_id=0, topic_id=OFFSETS_TOPIC_ID, leader=2)])

    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        reopened.committed()
    assert reopened.replica_manager.produce_purgatory.size == 0


def test_append_elsewhere_than_on_the_leader_is_refused(tmp_path: Path):
    node = Node(tmp_path)
    outcomes: list[ErrorCode] = []

    node.log.append(1, [SimpleRecord(b"k", b"v")], outcomes.append)

    assert outcomes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_reading_stops_when_leadership_goes(tmp_path: Path):
    node = Node(tmp_path, replicas=(1, 2))
    for _ in range(2):
        node.log.append(0, [SimpleRecord(b"k", bytes(LOAD_CHUNK_BYTES))], lambda error: None)
    chunks = node.log.read(0)
    next(chunks)

    node.metadata.apply_committed([PartitionChangeRecord(partition_id=0, topic_id=OFFSETS_TOPIC_ID, leader=2)])

    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        next(chunks)


def test_partition_count_is_the_topics_own_once_it_exists(tmp_path: Path):
    assert Node(tmp_path).log.partition_count == 1
