"""Transcripts of offsets that are committed in transactions: pending until the marker's place in the log, then counting or gone."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.coordination.records import CoordinatorRecord
from broker.groups.record_table import GROUP_RECORDS
from protocol.errors import ErrorCode
from protocol.messages.stored.group_records import OffsetCommitKey, OffsetCommitValue
from protocol.records import build_batch
from tests.broker.groups.consumer.consumers import Consumers
from tests.broker.groups.transcript import Transcript, stable_group

DAY_MS = 24 * 60 * 60 * 1000
CHECK_MS = 600_000
NEW_ID = bytes(15) + b"n"


@pytest.mark.parametrize(("is_commit", "kind", "offset"), [(True, "COMMIT", 7), (False, "ABORT", 5)])
def test_an_offset_is_pending_until_the_marker(is_commit: bool, kind: str, offset: int):
    script = Transcript()
    script.commit(5)
    script.skip()

    script.commit_in_transaction(7)
    script.fetch(0)
    script.fetch(0, require_stable=True)
    script.end_transaction(is_commit=is_commit)
    script.fetch(0, require_stable=True)

    script.expect(
        "log: t-0=7 of 9",
        "commit 7 of 9 OK",
        "fetch t-0=5",
        "fetch t-0=UNSTABLE_OFFSET_COMMIT",
        f"log: {kind} of 9",
        "end of 9 OK",
        f"fetch t-0={offset}",
    )


def test_what_happened_is_there_after_a_crash():
    script = Transcript()
    script.commit_in_transaction(7, 9)
    script.commit_in_transaction(8, 10, partition=1)
    script.end_transaction(9)
    script.skip()

    script.restart()
    script.fetch(0, 1, require_stable=True)
    script.end_transaction(10)
    script.restart()
    script.fetch(0, 1, require_stable=True)

    script.expect("fetch t-0=7 t-1=UNSTABLE_OFFSET_COMMIT", "log: COMMIT of 10", "end of 10 OK", "fetch t-0=7 t-1=8")


def test_only_the_last_of_a_transactions_commits_counts():
    script = Transcript()
    script.commit_in_transaction(7)
    script.commit_in_transaction(8)
    script.end_transaction()
    script.skip()

    script.fetch(0)

    script.expect("fetch t-0=8")


def test_of_a_plain_and_a_transactional_commit_the_later_counts():
    script = Transcript()
    script.commit_in_transaction(5)
    script.commit(8)
    script.end_transaction()
    script.fetch(0)
    script.expect_last("fetch t-0=8")

    script.commit(9)
    script.commit_in_transaction(6)
    script.end_transaction()
    script.fetch(0)
    script.expect_last("fetch t-0=6")

    script.restart()
    script.fetch(0)
    script.expect("fetch t-0=6")


def test_of_two_transactions_the_later_commit_counts():
    script = Transcript()
    script.commit_in_transaction(5, 9)
    script.commit_in_transaction(6, 10)
    script.end_transaction(10)
    script.fetch(0, require_stable=True)
    script.end_transaction(9)
    script.fetch(0, require_stable=True)

    script.expect_last("fetch t-0=UNSTABLE_OFFSET_COMMIT", "log: COMMIT of 9", "end of 9 OK", "fetch t-0=6")


def test_reads_see_a_marker_when_it_is_committed():
    script = Transcript()
    script.commit_in_transaction(7)
    script.log.is_holding = True
    script.skip()

    script.end_transaction()
    script.fetch(0)
    script.fetch(0, require_stable=True)
    assert script.unanswered_count == 2
    script.log.commit()

    script.expect("log: COMMIT of 9", "fetch t-0=-1", "end of 9 OK", "fetch t-0=7")


def test_a_commit_that_is_not_committed_is_waited_for():
    script = Transcript()
    script.log.is_holding = True

    script.commit_in_transaction(7)
    script.fetch(0, require_stable=True)
    script.log.commit()

    script.expect("log: t-0=7 of 9", "commit 7 of 9 OK", "fetch t-0=UNSTABLE_OFFSET_COMMIT")


def test_a_marker_without_offsets_is_written():
    script = Transcript()

    script.end_transaction()

    script.expect("log: COMMIT of 9", "end of 9 OK")


@pytest.mark.parametrize(
    ("refusal", "answer"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, "INVALID_PRODUCER_EPOCH"),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, "TRANSACTION_COORDINATOR_FENCED"),
        (ErrorCode.NOT_ENOUGH_REPLICAS, "NOT_LEADER_OR_FOLLOWER"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "NOT_LEADER_OR_FOLLOWER"),
    ],
)
def test_a_refused_marker_leaves_the_offsets_pending(refusal: ErrorCode, answer: str):
    script = Transcript()
    script.commit_in_transaction(7)
    script.skip()
    script.log.fail_with = refusal

    script.end_transaction()
    script.log.fail_with = None
    script.fetch(0, require_stable=True)

    script.expect(f"end of 9 {answer}", "fetch t-0=UNSTABLE_OFFSET_COMMIT")


def test_a_marker_is_refused_while_the_partition_is_loaded_and_elsewhere():
    script = Transcript()
    script.restart(is_loaded=False)

    script.end_transaction()
    script.coordinator.runtime.on_resigned(0)
    script.end_transaction()

    script.expect("end of 9 NOT_LEADER_OR_FOLLOWER", "end of 9 NOT_LEADER_OR_FOLLOWER")


def test_a_commit_without_a_guard_that_stands_is_refused():
    script = Transcript()
    script.log.fail_with = ErrorCode.INVALID_TXN_STATE

    script.commit_in_transaction(7)
    script.log.fail_with = None
    script.fetch(0, require_stable=True)

    script.expect("commit 7 of 9 INVALID_TXN_STATE", "fetch t-0=-1")


def test_metadata_that_is_too_large_refuses_its_partition():
    script = Transcript()

    script.commit_in_transaction(5, metadata="x" * 4097)

    script.expect("commit 5 of 9 OFFSET_METADATA_TOO_LARGE")


def test_a_group_needs_a_name():
    script = Transcript()

    script.commit_in_transaction(5, group_id="")

    script.expect("error INVALID_GROUP_ID")


# Who may commit


OK = "commit 5 of 9 OK"


@pytest.mark.parametrize(
    ("name", "generation", "instance", "answer"),
    [
        ("", -1, None, OK),  # a producer of old, though the group has members
        ("a", 1, None, OK),
        ("a", 0, None, "error ILLEGAL_GENERATION"),
        ("a", 2, None, "error ILLEGAL_GENERATION"),
        ("a", -1, None, "error ILLEGAL_GENERATION"),
        ("b", 1, None, "error UNKNOWN_MEMBER_ID"),
        ("", 1, None, "error UNKNOWN_MEMBER_ID"),
        ("", -1, "i", "error UNKNOWN_MEMBER_ID"),
    ],
)
def test_a_member_of_a_classic_group_commits_in_its_generation(name: str, generation: int, instance: str | None, answer: str):
    script = stable_group("a")

    script.commit_in_transaction(5, 9, name, generation=generation, instance=instance)

    assert script.lines[-1] == answer


def test_a_static_member_is_fenced_by_its_successor():
    script = Transcript()
    script.join("a", instance="i")
    script.advance(script.config.initial_rebalance_delay_ms)
    script.sync("a", a="A", instance="i")
    script.skip()

    script.commit_in_transaction(5, 9, "another", generation=1, instance="i")

    script.expect("error FENCED_INSTANCE_ID")


def test_a_rebalance_does_not_matter():
    """An OffsetCommit would be REBALANCE_IN_PROGRESS."""
    script = Transcript()
    script.join("a")
    script.advance(script.config.initial_rebalance_delay_ms)
    script.skip()

    script.commit(5, "a", generation=1)
    script.commit_in_transaction(5, 9, "a", generation=1)

    script.expect("error REBALANCE_IN_PROGRESS", "log: t-0=5 of 9", OK)


@pytest.mark.parametrize(("generation", "answer"), [(-1, OK), (0, "error ILLEGAL_GENERATION"), (3, "error ILLEGAL_GENERATION")])
def test_an_unknown_group_has_no_generation(generation: int, answer: str):
    script = Transcript()

    script.commit_in_transaction(5, 9, "a", generation=generation)

    assert script.lines[-1] == answer


@pytest.mark.parametrize(
    ("name", "epoch", "instance", "answer"),
    [
        ("", -1, None, OK),
        ("a", 2, None, OK),
        ("a", 1, None, "error ILLEGAL_GENERATION"),
        ("a", 3, None, "error ILLEGAL_GENERATION"),
        ("a", -1, None, "error ILLEGAL_GENERATION"),
        ("b", 2, None, "error UNKNOWN_MEMBER_ID"),
        ("", 2, None, "error UNKNOWN_MEMBER_ID"),
        ("", -1, "i", "error UNKNOWN_MEMBER_ID"),
        ("", -2, None, "error UNKNOWN_MEMBER_ID"),
    ],
)
def test_a_member_of_a_kip_848_group_commits_in_its_epoch(name: str, epoch: int, instance: str | None, answer: str):
    """STALE_MEMBER_EPOCH is unknown to producers."""
    consumers = Consumers()
    consumers.join_consumer("a")
    consumers.settle("a")
    assert consumers.epochs["a"] == 2

    consumers.commit_in_transaction(5, 9, name, generation=epoch, instance=instance)

    assert consumers.lines[-1] == answer


def test_a_member_that_was_moved_on_may_commit_what_it_has_had_since_before():
    """KIP-1251, as for plain commits."""
    consumers = Consumers()
    consumers.join_consumer("a")
    consumers.settle("a")
    consumers.join_consumer("b")
    consumers.settle("a", "b")
    assert consumers.epochs["a"] > 2
    (kept,) = consumers.group.members["a"].assigned[b"t".ljust(16, b"\0")]

    consumers.commit_in_transaction(5, 9, "a", generation=2, partition=kept)
    consumers.commit_in_transaction(5, 9, "b", generation=2, partition=1 - kept)

    consumers.expect(f"log: t-{kept}=5 of 9", OK, "error ILLEGAL_GENERATION")


def test_a_kip_848_group_without_members_takes_any_commit():
    consumers = Consumers()
    consumers.join_consumer("a")
    consumers.leave_consumer("a")
    consumers.skip()

    consumers.commit_in_transaction(5)

    consumers.expect("log: t-0=5 of 9", OK)


# Deleted groups and topics, expiry


def delete_group(script: Transcript) -> None:
    steps = script.coordinator.deletions().delete_group("g")
    try:
        while True:
            next(steps)
    except StopIteration as end:
        end.value.when_done(lambda error: script._line(f"delete {'OK' if error is ErrorCode.NONE else error.name}"))


def test_a_deleted_group_takes_its_pending_offsets_with_it():
    script = Transcript()
    script.commit_in_transaction(7)
    script.commit_in_transaction(8, 10)
    script.commit_in_transaction(9, 10, partition=1)
    script.skip()

    delete_group(script)
    script.end_transaction(9)
    script.end_transaction(10)
    script.fetch()
    script.fetch(0, require_stable=True)

    script.expect(
        "log: t-0=deleted",
        "log: t-1=deleted",
        "log: group deleted",
        "delete OK",
        "log: COMMIT of 9",
        "end of 9 OK",
        "log: COMMIT of 10",
        "end of 10 OK",
        "fetch nothing",
        "fetch t-0=-1",
    )
    script.restart()
    script.fetch()
    script.expect("fetch nothing")


def test_a_deleted_topic_takes_its_pending_offsets_with_it():
    script = Transcript()
    script.commit(5)
    script.commit_in_transaction(7, 9)
    script.commit_in_transaction(8, 10, partition=1)
    script.skip()

    script.delete_topic("t")
    script.end_transaction(9)
    script.end_transaction(10)
    script.fetch(0, 1)

    script.expect(
        "log: t-0=deleted",
        "log: t-1=deleted",
        "log: COMMIT of 9",
        "end of 9 OK",
        "log: COMMIT of 10",
        "end of 10 OK",
        "fetch t-0=-1 t-1=-1",
    )


def test_a_topic_deleted_while_nobody_coordinated_takes_its_pending_offsets_with_it():
    script = Transcript()
    script.commit_in_transaction(7)
    script.skip()
    script.restart(is_loaded=False)
    script.coordinator.stop()

    script.delete_topic("t")
    script.create_topic("t", partitions=2, topic_id=NEW_ID)
    script.restart()
    script.end_transaction()
    script.fetch(0)

    script.expect("log: t-0=deleted", "log: COMMIT of 9", "end of 9 OK", "fetch t-0=-1")


def test_pending_offsets_of_the_topic_that_was_made_anew_stay():
    """A coordinator that learns of both at once loads what was committed for the new topic; only what is the old one's alone goes."""
    script = Transcript()
    script.commit(5)
    script.commit(5, partition=1)
    script.skip()
    script.restart(is_loaded=False)
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    record = CoordinatorRecord(key, OffsetCommitValue(offset=7, topic_id=NEW_ID))
    script.append_foreign(
        build_batch([GROUP_RECORDS.encode(record, 0)], producer_id=9, producer_epoch=0, base_sequence=0, is_transactional=True)
    )

    script.delete_topic("t")
    script.create_topic("t", partitions=2, topic_id=NEW_ID)
    script.advance(0)
    script.end_transaction()
    script.fetch(0, 1)

    script.expect("log: t-0=deleted", "log: COMMIT of 9", "end of 9 OK", "fetch t-0=-1 t-1=7")


def test_a_deleted_offset_is_not_brought_back_by_a_marker():
    script = Transcript()
    script.commit_in_transaction(7)
    script.skip()

    errors, written = script.coordinator.deletions().delete_offsets("g", [("t", 0), ("t", 1)])
    script.end_transaction()
    script.fetch(0)

    assert errors == [ErrorCode.NONE, ErrorCode.NONE]
    assert written.is_done
    script.expect("log: t-0=deleted", "log: COMMIT of 9", "end of 9 OK", "fetch t-0=-1")


def test_a_group_with_pending_offsets_does_not_expire():
    script = Transcript()
    script.commit(5)
    script.commit(6, partition=1)
    script.commit_in_transaction(7)
    script.skip()

    script.advance(8 * DAY_MS)
    script.expect("log: t-1=deleted")
    script.end_transaction(is_commit=False)
    script.skip()
    script.advance(CHECK_MS)

    script.expect("log: t-0=deleted", "log: group deleted")


def test_a_group_with_pending_offsets_alone_does_not_expire():
    script = Transcript()
    script.commit_in_transaction(7)
    script.skip()

    script.advance(8 * DAY_MS)
    script.expect()
    script.end_transaction()
    script.skip()
    script.fetch(0)

    script.expect("fetch t-0=7")


# Against a plain model


class Model:
    """The offsets of one group as the log alone says: a list of what was written, read from its start."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []

    def offsets(self) -> tuple[dict[int, int], set[int]]:
        """The counting offsets, and the partitions with pending ones."""
        counting: dict[int, tuple[int, int]] = {}  # partition → (place in the log, offset)
        pending: dict[int, dict[int, tuple[int, int]]] = {}
        for place, (kind, *facts) in enumerate(self.log):
            if kind == "plain":
                partition, offset = facts
                counting[partition] = (place, offset)
            elif kind == "pending":
                producer_id, partition, offset = facts
                pending.setdefault(producer_id, {})[partition] = (place, offset)
            elif kind == "deleted":
                counting.pop(facts[0], None)
                for offsets in pending.values():
                    offsets.pop(facts[0], None)
            else:
                producer_id, is_commit = facts
                for partition, found in pending.pop(producer_id, {}).items():
                    if is_commit:
                        counting[partition] = max(found, counting.get(partition, (-1, -1)))
        is_pending = {partition for offsets in pending.values() for partition in offsets}
        return {partition: offset for partition, (_, offset) in counting.items()}, is_pending


@pytest.mark.parametrize("seed", range(6))
def test_what_counts_and_what_is_pending_is_what_the_log_says(seed: int):
    random_source = random.Random(seed)
    script, model = Transcript(), Model()
    partitions = range(2)

    for step in range(150):
        partition, producer_id = random_source.choice(partitions), random_source.randrange(1, 6)
        match random_source.randrange(10):
            case 0 | 1:
                script.commit(step, partition=partition)
                model.log.append(("plain", partition, step))
            case 2 | 3 | 4 | 5:
                script.commit_in_transaction(step, producer_id, partition=partition)
                model.log.append(("pending", producer_id, partition, step))
            case 6 | 7 | 8:
                is_commit = random_source.random() < 0.6
                script.end_transaction(producer_id, is_commit=is_commit)
                model.log.append(("end", producer_id, is_commit))
            case _ if model.log and random_source.random() < 0.5 and "g" in script.groups:
                script.coordinator.deletions().delete_offsets("g", [("t", partition)])
                model.log.append(("deleted", partition))
            case _:
                script.restart()
        script.skip()
        counting, pending = model.offsets()
        script.fetch(*partitions)
        script.fetch(*partitions, require_stable=True)
        expected = " ".join(f"t-{each}={counting.get(each, -1)}" for each in partitions)
        stable = " ".join(f"t-{each}={'UNSTABLE_OFFSET_COMMIT' if each in pending else counting.get(each, -1)}" for each in partitions)
        script.expect(f"fetch {expected}", f"fetch {stable}")


def test_nothing_is_left_of_ended_transactions():
    """Neither in memory, nor as an empty dict that a group would not expire for."""
    script = Transcript()
    for producer_id in range(1, 20):
        script.commit_in_transaction(5, producer_id, partition=producer_id % 2)
    for producer_id in range(1, 20):
        script.end_transaction(producer_id, is_commit=producer_id % 3 == 0)

    pending = script.coordinator.runtime.get_shard_of(0).machine.offset_manager._pending

    assert (pending._by_group, pending._by_producer) == ({}, {})


class CountedDict(dict[Any, Any]):
    """Counts what is looked at."""

    looks = 0

    def __iter__(self) -> Any:
        for each in super().__iter__():
            CountedDict.looks += 1
            yield each

    def values(self) -> Any:
        return [self[each] for each in self]

    def items(self) -> Any:
        return [(each, self[each]) for each in self]


@pytest.mark.parametrize("count", [10, 10_000])
def test_finding_what_is_pending_costs_the_same_with_many_open_transactions(count: int):
    """No walk over the producers: neither of all, nor of those of the partition."""
    script = Transcript()
    for producer_id in range(count):
        script.commit_in_transaction(5, producer_id, partition=1)
    script.skip()
    manager = script.coordinator.runtime.get_shard_of(0).machine.offset_manager
    pending = manager._pending
    pending._by_producer = CountedDict(pending._by_producer)
    pending._by_group["g"]["t"][1] = CountedDict(pending._by_group["g"]["t"][1])
    CountedDict.looks = 0

    script.fetch(0, 1, require_stable=True)
    records = manager.expire("g")
    tombstones = list(manager.tombstones_of("g"))

    script.expect("fetch t-0=-1 t-1=UNSTABLE_OFFSET_COMMIT")
    assert (records, len(tombstones), CountedDict.looks) == ([], 1, 0)
