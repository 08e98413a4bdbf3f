"""Dialogues about transactions, step by step. Each is a function that asks one server; producer ids are those that this server gave.

A step's answer is told by its label, so that a difference names the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.peers.odd_request import batch

TRANSACTION_KEY_TYPE = 1
UNKNOWN_PRODUCER = 987_654_321
TIMEOUT_MS = 60_000
TOPIC, OTHER_TOPIC, MISSING = "three", "other", "missing"
"""The first has three partitions, the second one; the third does not exist."""

Producer = tuple[int, int]
Tell = Callable[..., Any]
"""Sends a message in a version and returns the answer, which is noted under the label."""


class Dialogue(NamedTuple):
    name: str
    run: Callable[[Tell], None]


def init(tell: Tell, transactional_id: str, version: int = 4, *, label: str = "init", **fields: Any) -> Producer:
    request = InitProducerIdRequest(**({"transactional_id": transactional_id, "transaction_timeout_ms": TIMEOUT_MS} | fields))
    answer = tell(label, request, version)
    return answer.producer_id, answer.producer_epoch


def adding(transactional_id: str, producer: Producer, *partitions: int, topic: str = TOPIC) -> AddPartitionsToTxnRequest:
    """As clients ask, below version 4."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
    )


def of_brokers(*asked: tuple[str, Producer, bool, dict[str, list[int]]]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer[0],
                producer_epoch=producer[1],
                verify_only=verify_only,
                topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
            )
            for transactional_id, producer, verify_only, topics in asked
        ]
    )


def ending(transactional_id: str, producer: Producer, *, commit: bool = True) -> EndTxnRequest:
    return EndTxnRequest(transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=commit)


def producing(
    transactional_id: str | None, producer: Producer, *, sequence: int = 0, partition: int = 0, topic: str = TOPIC, **fields: Any
) -> ProduceRequest:
    records = batch(producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence, **({"is_transactional": True} | fields))
    return produce_of(transactional_id, (topic, partition, records))


def produce_of(transactional_id: str | None, *parts: tuple[str, int, Any]) -> ProduceRequest:
    topics = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=index, records=records)]) for name, index, records in parts
    ]
    return ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=topics)


def committing(
    transactional_id: str, producer: Producer, group: str, *offsets: tuple[int, int], topic: str = TOPIC, **fields: Any
) -> TxnOffsetCommitRequest:
    metadata = fields.pop("metadata", "")
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
        for index, offset in offsets
    ]
    topics = [TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)]
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id, group_id=group, producer_id=producer[0], producer_epoch=producer[1], topics=topics, **fields
    )


def marker(
    producer: Producer, *partitions: int, topic: str = TOPIC, commit: bool = True, coordinator_epoch: int = 0, version: int = 0
) -> Any:
    return WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(partitions))],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


def stable_end(tell: Tell, label: str, *partitions: int) -> None:
    """The end offsets with READ_COMMITTED, and without."""
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in partitions]
    for isolation_level in (0, 1):
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation_level, topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)]
        )
        tell(f"{label}, isolation level {isolation_level}", request, 7)


def pending_offset(tell: Tell, label: str, group: str) -> None:
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0, 1])]
    for require_stable in (False, True):
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=require_stable)
        tell(f"{label}, stable {require_stable}", request, 8)


# -- the dialogues ------------------------------------------------------------------------------------------------


def finding_coordinators(tell: Tell) -> None:
    for version in (1, 3, 4, 6):
        for key in ("x", "", "\u00e4" * 200):
            named = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
            tell(f"v{version} {key[:5]!r}", FindCoordinatorRequest(key_type=TRANSACTION_KEY_TYPE, **named), version)
    tell("two keys", FindCoordinatorRequest(key_type=TRANSACTION_KEY_TYPE, coordinator_keys=["a", "b", "a"]), 4)
    tell("no keys", FindCoordinatorRequest(key_type=TRANSACTION_KEY_TYPE, coordinator_keys=[]), 4)


def initializing(tell: Tell) -> None:
    for timeout_ms in (0, -1, 1, 900_000, 900_001, 2**31 - 1):
        init(tell, f"timeout {timeout_ms}", label=f"timeout {timeout_ms}", transaction_timeout_ms=timeout_ms)
    for version in range(7):
        producer = init(tell, "versions", version, label=f"v{version}")
        if version >= 3 and producer[0] >= 0:
            init(tell, "versions", version, label=f"v{version} goes on", producer_id=producer[0], producer_epoch=producer[1])
            init(tell, "versions", version, label=f"v{version} retry", producer_id=producer[0], producer_epoch=producer[1])
            init(tell, "versions", version, label=f"v{version} older", producer_id=producer[0], producer_epoch=0)
            init(tell, "versions", version, label=f"v{version} newer", producer_id=producer[0], producer_epoch=99)
    for producer_id, epoch in [(-1, 0), (0, -1), (-5, -5), (-2, 0), (UNKNOWN_PRODUCER, 0), (UNKNOWN_PRODUCER, 32767), (-1, -1)]:
        init(tell, f"new {producer_id}", label=f"new with {producer_id}, {epoch}", producer_id=producer_id, producer_epoch=epoch)
        init(tell, "versions", label=f"known with {producer_id}, {epoch}", producer_id=producer_id, producer_epoch=epoch)
    init(tell, "x" * 300, label="a long id")


def adding_partitions(tell: Tell) -> None:
    producer = init(tell, "add")
    older, newer, other = (producer[0], producer[1] - 1), (producer[0], producer[1] + 1), (UNKNOWN_PRODUCER, 0)
    for version in (0, 1, 2, 3):
        for name, who in (("older", older), ("newer", newer), ("other", other)):
            tell(f"v{version} {name}", adding("add", who, 0), version)
        tell(f"v{version} unknown id", adding("nobody", producer, 0), version)
        tell(f"v{version} empty id", adding("", producer, 0), version)
        tell(f"v{version} unknown partitions", adding("add", producer, 0, 7, -1), version)
        tell(f"v{version} unknown topic", adding("add", producer, 0, topic=MISSING), version)
        tell(f"v{version} bad topic", adding("add", producer, 0, topic="a/b"), version)
        tell(f"v{version} no partitions", adding("add", producer), version)
        tell(f"v{version} no topics", AddPartitionsToTxnRequest(v3_and_below_transactional_id="add"), version)
        tell(f"v{version} twice the same", adding("add", producer, version % 3, version % 3), version)
        tell(f"v{version} internal", adding("add", producer, 0, topic="__consumer_offsets"), version)
    tell("end", ending("add", producer), 2)


def adding_by_brokers(tell: Tell) -> None:
    for version in (4, 5):
        first, second = init(tell, f"b{version}", label=f"v{version} first"), init(tell, f"c{version}", label=f"v{version} second")
        ids = f"b{version}", f"c{version}"
        tell(f"v{version} none", of_brokers(), version)
        tell(f"v{version} no topics", of_brokers((ids[0], first, False, {})), version)
        tell(f"v{version} no topics to verify", of_brokers((ids[0], first, True, {})), version)
        tell(f"v{version} not begun", of_brokers((ids[0], first, True, {TOPIC: [0]})), version)
        tell(
            f"v{version} two",
            of_brokers((ids[0], first, False, {TOPIC: [0, 1]}), (ids[1], second, False, {TOPIC: [0], OTHER_TOPIC: [0]})),
            version,
        )
        tell(
            f"v{version} verified",
            of_brokers((ids[0], first, True, {TOPIC: [0, 1, 2]}), (ids[1], second, True, {MISSING: [0], OTHER_TOPIC: [0]})),
            version,
        )
        tell(
            f"v{version} unknown",
            of_brokers((ids[0], first, False, {TOPIC: [2], MISSING: [0]}), ("nobody", first, False, {TOPIC: [0]})),
            version,
        )
        tell(f"v{version} empty id", of_brokers(("", first, False, {TOPIC: [0]}), ("", first, True, {TOPIC: [0]})), version)
        for name, who in (("older", (first[0], first[1] - 1)), ("newer", (first[0], first[1] + 1)), ("other", (UNKNOWN_PRODUCER, 0))):
            for verify_only in (False, True):
                tell(f"v{version} {name}, verify {verify_only}", of_brokers((ids[0], who, verify_only, {TOPIC: [0]})), version)
        tell(f"v{version} end", ending(ids[0], first, commit=False), 4)
        tell(f"v{version} ended, verify", of_brokers((ids[0], first, True, {TOPIC: [0]})), version)
        tell(f"v{version} end second", ending(ids[1], second), 5)


def adding_offsets(tell: Tell) -> None:
    producer = init(tell, "offsets")
    for version in range(5):
        for name, who in (
            ("older", (producer[0], producer[1] - 1)),
            ("newer", (producer[0], producer[1] + 1)),
            ("other", (UNKNOWN_PRODUCER, 0)),
        ):
            tell(f"v{version} {name}", add_offsets("offsets", who, "g"), version)
        tell(f"v{version} unknown id", add_offsets("nobody", producer, "g"), version)
        tell(f"v{version} empty id", add_offsets("", producer, "g"), version)
        tell(f"v{version} empty group", add_offsets("offsets", producer, ""), version)
        tell(f"v{version}", add_offsets("offsets", producer, "g"), version)
    tell("end", ending("offsets", producer), 2)


def add_offsets(transactional_id: str, producer: Producer, group: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], group_id=group)


def ending_transactions(tell: Tell) -> None:
    for version in range(6):
        transactional_id = f"end {version}"
        for commit in (True, False):
            producer = init(tell, transactional_id, label=f"v{version} init")
            tell(f"v{version} {commit}, empty", ending(transactional_id, producer, commit=commit), version)
            producer = init(tell, transactional_id, label=f"v{version} init once more")
            tell(f"v{version} {commit} add", adding(transactional_id, producer, 0), 3)
            for name, who in (("older", -1), ("newer", 1)):
                other = (producer[0], producer[1] + who)
                tell(f"v{version} {commit}, {name}", ending(transactional_id, other, commit=commit), version)
            tell(f"v{version} {commit}, other", ending(transactional_id, (UNKNOWN_PRODUCER, 0), commit=commit), version)
            tell(f"v{version} {commit}", ending(transactional_id, producer, commit=commit), version)
            tell(f"v{version} {commit}, retry", ending(transactional_id, producer, commit=commit), version)
            tell(f"v{version} {commit}, the other end", ending(transactional_id, producer, commit=not commit), version)
        tell(f"v{version}, unknown id", ending("nobody", producer), version)
        tell(f"v{version}, empty id", ending("", producer), version)


def producing_in_transactions(tell: Tell) -> None:
    for version in (3, 8, 9, 10, 11, 12):
        transactional_id = f"produce {version}"
        producer = init(tell, transactional_id, label=f"v{version} init")
        tell(f"v{version} not added", producing(transactional_id, producer), version)
        if version < 12:
            tell(f"v{version} add", adding(transactional_id, producer, 0, 1), 3)
        tell(f"v{version} added", producing(transactional_id, producer, sequence=version // 12), version)
        tell(f"v{version} the next", producing(transactional_id, producer, sequence=1 + version // 12), version)
        tell(f"v{version} a gap", producing(transactional_id, producer, sequence=9), version)
        tell(
            f"v{version} the first of another partition with a gap", producing(transactional_id, producer, sequence=3, partition=1), version
        )
        tell(f"v{version} a duplicate", producing(transactional_id, producer, sequence=0), version)
        tell(f"v{version} plain in its own transaction", producing(None, producer, sequence=2, is_transactional=False), version)
        tell(f"v{version} plain beside the id", producing(transactional_id, producer, sequence=2, is_transactional=False), version)
        tell(f"v{version} without the id", producing(None, producer, sequence=2), version)
        for name, who in (("older", (producer[0], producer[1] - 1)), ("newer", (producer[0], producer[1] + 1))):
            tell(f"v{version} {name}", producing(transactional_id, who, sequence=2), version)
        tell(f"v{version} other", producing(transactional_id, (UNKNOWN_PRODUCER, 0)), version)
        tell(f"v{version} unknown partition", producing(transactional_id, producer, partition=9), version)
        tell(f"v{version} unknown topic", producing(transactional_id, producer, topic=MISSING), version)
        tell(f"v{version} internal topic", producing(transactional_id, producer, topic="__transaction_state"), version)
        tell(f"v{version} a control batch", producing(transactional_id, producer, sequence=2, is_control=True), version)
        stable_end(tell, f"v{version} open", 0, 1)
        tell(f"v{version} end", ending(transactional_id, producer, commit=version % 2 == 0), 4 if version < 12 else 5)
        tell(f"v{version} ended", ending(transactional_id, producer, commit=version % 2 == 0), 4 if version < 12 else 5)
        tell(f"v{version} late", producing(transactional_id, producer, sequence=2), version)
        tell(f"v{version} new", init_request(transactional_id), 4)
        stable_end(tell, f"v{version} ended", 0, 1)


def init_request(transactional_id: str) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS)


def two_producers_in_a_request(tell: Tell) -> None:
    first, second = init(tell, "one of two"), init(tell, "two of two")
    batches = [batch(producer_id=each[0], producer_epoch=each[1], base_sequence=0, is_transactional=True) for each in (first, second)]
    for version in (9, 11, 12):
        tell(f"v{version} two producers", produce_of("one of two", (TOPIC, 0, batches[0]), (OTHER_TOPIC, 0, batches[1])), version)
        tell(f"v{version} one plain", produce_of("one of two", (TOPIC, 2, batches[0]), (OTHER_TOPIC, 0, batch())), version)
        tell(f"v{version} one unknown", produce_of("one of two", (TOPIC, 2, batches[0]), (MISSING, 0, batches[0])), version)
    tell("end", ending("one of two", first, commit=False), 5)


def committing_offsets(tell: Tell) -> None:
    for version in range(6):
        transactional_id, group = f"commit {version}", f"group {version}"
        producer = init(tell, transactional_id, label=f"v{version} init")
        if version < 5:
            tell(f"v{version} not added", committing(transactional_id, producer, group, (0, 5)), version)
            tell(f"v{version} add", add_offsets(transactional_id, producer, group), 3)
        tell(f"v{version} added", committing(transactional_id, producer, group, (0, 5)), version)
        pending_offset(tell, f"v{version} pending", group)
        tell(f"v{version} unknown partitions", committing(transactional_id, producer, group, (0, 6), (9, 1), (-1, 1)), version)
        tell(f"v{version} unknown topic", committing(transactional_id, producer, group, (0, 6), topic=MISSING), version)
        tell(f"v{version} no partitions", committing(transactional_id, producer, group), version)
        tell(f"v{version} negative offset", committing(transactional_id, producer, group, (1, -5)), version)
        tell(f"v{version} long metadata", committing(transactional_id, producer, group, (0, 7), metadata="m" * 5_000), version)
        tell(f"v{version} null metadata", committing(transactional_id, producer, group, (0, 8), metadata=None), version)
        tell(f"v{version} older", committing(transactional_id, (producer[0], producer[1] - 1), group, (0, 5)), version)
        tell(f"v{version} newer", committing(transactional_id, (producer[0], producer[1] + 1), group, (0, 5)), version)
        tell(f"v{version} other", committing(transactional_id, (UNKNOWN_PRODUCER, 0), group, (0, 5)), version)
        tell(f"v{version} unknown id", committing("nobody", producer, "another", (0, 5)), version)
        tell(f"v{version} empty id", committing("", producer, "another", (0, 5)), version)
        tell(f"v{version} empty group", committing(transactional_id, producer, "", (0, 5)), version)
        if version >= 3:
            for fields in ({"generation_id": 3}, {"member_id": "m"}, {"group_instance_id": "i"}, {"generation_id": 0, "member_id": "m"}):
                tell(f"v{version} {fields}", committing(transactional_id, producer, group, (0, 9), **fields), version)
        tell(f"v{version} end", ending(transactional_id, producer, commit=version % 2 == 1), 5 if version == 5 else 4)
        tell(f"v{version} new", init_request(transactional_id), 4)
        pending_offset(tell, f"v{version} ended", group)


def writing_markers(tell: Tell) -> None:
    for version in (1, 2):
        at = 2 if version == 2 else 0
        base = 5_000_000 + version
        tell(f"v{version} none", WriteTxnMarkersRequest(markers=[]), version)
        tell(f"v{version} no partitions", WriteTxnMarkersRequest(markers=[marker((base, 0), version=at)]), version)
        tell(f"v{version} unknown topic", WriteTxnMarkersRequest(markers=[marker((base, 0), 0, topic=MISSING, version=at)]), version)
        tell(f"v{version} unknown partition", WriteTxnMarkersRequest(markers=[marker((base, 0), 0, 9, -1, version=at)]), version)
        tell(
            f"v{version} unknown producer", WriteTxnMarkersRequest(markers=[marker((base, 5), 2, coordinator_epoch=3, version=at)]), version
        )
        tell(f"v{version} once more", WriteTxnMarkersRequest(markers=[marker((base, 5), 2, coordinator_epoch=3, version=at)]), version)
        tell(f"v{version} older", WriteTxnMarkersRequest(markers=[marker((base, 4), 2, coordinator_epoch=3, version=at)]), version)
        tell(
            f"v{version} older coordinator",
            WriteTxnMarkersRequest(markers=[marker((base, 6), 2, coordinator_epoch=2, version=at)]),
            version,
        )
        tell(
            f"v{version} newer coordinator",
            WriteTxnMarkersRequest(markers=[marker((base, 6), 2, coordinator_epoch=4, version=at)]),
            version,
        )
        tell(
            f"v{version} negative epochs",
            WriteTxnMarkersRequest(markers=[marker((base, -1), 2, coordinator_epoch=-1, version=at)]),
            version,
        )
        tell(
            f"v{version} several",
            WriteTxnMarkersRequest(markers=[marker((base + 10 * each, 0), 0, 1, version=at) for each in (1, 2)]),
            version,
        )
        tell(f"v{version} a partition twice", WriteTxnMarkersRequest(markers=[marker((base + 70, 0), 2, 2, version=at)]), version)
        tell(
            f"v{version} offsets",
            WriteTxnMarkersRequest(markers=[marker((base + 50, 0), 0, topic="__consumer_offsets", version=at)]),
            version,
        )


def an_open_transaction_ended_by_a_marker(tell: Tell) -> None:
    """As `kafka-transactions abort` does."""
    producer = init(tell, "hanging")
    tell("produce", producing("hanging", producer), 12)
    tell("the coordinator's epoch", WriteTxnMarkersRequest(markers=[marker(producer, 0, commit=False, coordinator_epoch=-1)]), 1)
    stable_end(tell, "after the abort", 0)
    tell("end", ending("hanging", producer, commit=False), 5)


def fetching(tell: Tell) -> None:
    """What READ_COMMITTED gets of a partition with an aborted, a committed and an open transaction."""
    producer = init(tell, "fetched")
    for number, commit in enumerate((False, True)):
        tell(f"produce {number}", producing("fetched", producer, topic="fetched"), 12)
        answer = tell(f"end {number}", ending("fetched", producer, commit=commit), 5)
        producer = answer.producer_id, answer.producer_epoch
    tell("produce open", producing("fetched", producer, topic="fetched"), 12)
    for isolation_level in (0, 1):
        for offset in (0, 1, 2, 4, 5):
            partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
            request = FetchRequest(
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=1_000_000,
                isolation_level=isolation_level,
                session_epoch=-1,
                topics=[FetchTopic(topic="fetched", partitions=[partition])],
            )
            tell(f"fetch {offset}, isolation level {isolation_level}", request, 11)
    tell("end", ending("fetched", producer, commit=False), 5)


DIALOGUES: Sequence[Callable[[Tell], None]] = (
    finding_coordinators,
    initializing,
    adding_partitions,
    adding_by_brokers,
    adding_offsets,
    ending_transactions,
    producing_in_transactions,
    two_producers_in_a_request,
    committing_offsets,
    writing_markers,
    an_open_transaction_ended_by_a_marker,
    fetching,
)
