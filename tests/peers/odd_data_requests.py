"""Odd but legal requests of producers and consumers. See odd_requests.py."""

from __future__ import annotations

from typing import Any

from protocol.compression import Compression
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.peers.odd_request import INT32_MAX, NOW_MS, UNKNOWN_ID, Row, batch, produce


def _listed(*asked: tuple[str, list[ListOffsetsPartition]], **fields: Any) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=list(partitions)) for name, partitions in asked], **fields
    )


def _at(timestamp: int, partition: int = 0, epoch: int = -1) -> ListOffsetsPartition:
    return ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)


def _broken(records: memoryview, position: int) -> memoryview:
    changed = bytearray(records)
    changed[position] ^= 0x55
    return memoryview(changed)


LIST_OFFSETS: list[Row] = [
    (f"timestamp {stamp} v{version}", _listed(("one", [_at(stamp)])), version)
    for stamp in (-1, -2, -3, -4, -5, -6, -7, 0, 1, 2**52)
    for version in (1, 4, 7, 8, 9, 10)
]
LIST_OFFSETS += [
    ("no topics", _listed(), 7),
    ("a topic without partitions", _listed(("one", [])), 7),
    ("an unknown topic without partitions", _listed(("missing", [])), 7),
    ("unknown topic", _listed(("missing", [_at(-1)])), 7),
    ("unknown partition", _listed(("one", [_at(-1, 9)])), 7),
    ("negative partition", _listed(("one", [_at(-1, -1)])), 7),
    ("bad topic name", _listed(("a/b", [_at(-1)])), 7),
    ("a partition twice", _listed(("three", [_at(-1, 1), _at(-2, 1), _at(-1, 2)])), 7),
    ("a topic twice", _listed(("three", [_at(-1, 1)]), ("three", [_at(-1, 2)])), 7),
    ("a topic twice, with the same partition", _listed(("three", [_at(-1, 1)]), ("three", [_at(-1, 1)])), 7),
    ("isolation level 1", _listed(("one", [_at(-1)]), isolation_level=1), 7),
    ("isolation level 5", _listed(("one", [_at(-1)]), isolation_level=5), 7),
    ("isolation level -1", _listed(("one", [_at(-1)]), isolation_level=-1), 7),
    ("leader epoch -2", _listed(("one", [_at(-1, epoch=-2)])), 7),
    ("leader epoch -2147483648", _listed(("one", [_at(-1, epoch=-INT32_MAX - 1)])), 7),
    ("leader epoch 99", _listed(("one", [_at(-1, epoch=99)])), 7),
    ("replica id -2", ListOffsetsRequest(replica_id=-2, topics=_listed(("one", [_at(-1)])).topics), 7),
    ("replica id -7", ListOffsetsRequest(replica_id=-7, topics=_listed(("one", [_at(-1)])).topics), 7),
    ("replica id 9", ListOffsetsRequest(replica_id=9, topics=_listed(("one", [_at(-1)])).topics), 7),
    ("negative timeout", _listed(("one", [_at(-1)]), timeout_ms=-1), 10),
]


LONG_AGO_MS = NOW_MS - 10_000_000
PLAIN, ZSTD = bytes(batch()), bytes(batch(compression=Compression.ZSTD))
IDEMPOTENT = {"producer_id": 4242, "producer_epoch": 0}
PRODUCE: list[Row] = [
    ("an unknown id", produce("", batch()), 13),
    ("an unknown id, no records", produce("", None), 13),
    ("acks 2", produce("one", batch(), acks=2), 9),
    ("acks -2", produce("one", batch(), acks=-2), 7),
    ("no topics", ProduceRequest(acks=-1, timeout_ms=1000), 9),
    ("a topic without partitions", ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="one")]), 9),
    ("negative timeout", ProduceRequest(acks=-1, timeout_ms=-1, topic_data=produce("one", batch()).topic_data), 9),
    ("unknown topic", produce("missing", batch()), 9),
    ("unknown partition", produce("one", batch(), partition=9), 9),
    ("negative partition", produce("one", batch(), partition=-1), 9),
    ("bad topic name", produce("a/b", batch()), 9),
    *(
        (f"empty records, {name}-{index} v{version}", produce(name, b"", partition=index), version)
        for version in (3, 9)
        for name, index in (("missing", 0), ("one", 9), ("one", -1))
    ),
    ("null records", produce("one", None), 9),
    ("empty records", produce("one", b""), 9),
    ("compacted topic, no key", produce("compacted", batch(None)), 9),
    ("compacted topic, no key, old version", produce("compacted", batch(None)), 7),
    ("compacted topic, one of two without key", produce("compacted", batch(b"k", None)), 9),
    ("compacted topic, no key, too old", produce("strict", batch(None, timestamp=LONG_AGO_MS)), 9),
    ("compacted topic, one of two without key, both too old", produce("strict", batch(b"k", None, timestamp=LONG_AGO_MS)), 9),
    ("too large", produce("small", batch(b"k" * 400)), 9),
    ("larger than a segment", produce("hidden", batch(b"k" * 110_000)), 9),
    ("of a sequence", produce("hidden", batch(base_sequence=0, **IDEMPOTENT)), 9),
    ("larger than a segment, out of sequence", produce("hidden", batch(b"k" * 110_000, base_sequence=7, **IDEMPOTENT)), 9),
    ("larger than a segment, a sequence that was", produce("hidden", batch(b"k" * 110_000, base_sequence=0, **IDEMPOTENT)), 9),
    ("LogAppendTime by the producer, compacted topic", produce("stamped-compacted", batch(None, b"k", log_append_time_ms=NOW_MS)), 9),
    ("LogAppendTime by the producer", produce("stamped", batch(b"k", None, log_append_time_ms=NOW_MS)), 9),
    ("no whole batch", produce("one", batch()[:-1]), 9),
    ("a batch and some bytes", produce("one", memoryview(bytearray(PLAIN + b"12345"))), 9),
    ("a batch and the beginning of another", produce("one", memoryview(bytearray(PLAIN + PLAIN[:-1]))), 9),
    ("no whole batch, a topic that compresses", produce("lz4", batch()[:-1]), 9),
    ("where zstd is fetched", produce("zstd", memoryview(bytearray(ZSTD))), 9),
    ("timestamp too old", produce("recent", batch(timestamp=NOW_MS - 10_000_000)), 9),
    ("timestamp too new", produce("recent", batch(timestamp=NOW_MS + 10_000_000)), 9),
    ("timestamp -1", produce("one", batch(timestamp=-1)), 9),
    ("timestamp -2", produce("one", batch(timestamp=-2)), 9),
    ("timestamp -2 where records are rewritten", produce("lz4", batch(timestamp=-2)), 9),
    ("timestamp -1 where records are rewritten", produce("lz4", batch(timestamp=-1)), 9),
    ("timestamp -2 on a compacted topic", produce("compacted", batch(timestamp=-2)), 9),
    ("timestamp -2 with LogAppendTime", produce("stamped", batch(timestamp=-2)), 9),
    ("timestamp -2, compressed", produce("one", batch(timestamp=-2, compression=Compression.GZIP)), 9),
    ("sequence that does not begin at 0", produce("one", batch(base_sequence=7, **IDEMPOTENT)), 9),
    ("sequence 0", produce("one", batch(base_sequence=0, **IDEMPOTENT)), 9),
    ("sequence 0 again", produce("one", batch(base_sequence=0, **IDEMPOTENT)), 9),
    ("gap in sequences", produce("one", batch(base_sequence=5, **IDEMPOTENT)), 9),
    ("gap in sequences, old version", produce("one", batch(base_sequence=5, **IDEMPOTENT)), 5),
    ("older epoch", produce("one", batch(base_sequence=1, producer_id=4343, producer_epoch=2)), 9),
    ("newer epoch, sequence 0", produce("one", batch(base_sequence=0, producer_id=4242, producer_epoch=1)), 9),
    ("fenced epoch", produce("one", batch(base_sequence=0, **IDEMPOTENT)), 9),
    (
        "two partitions, one unknown",
        ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name="three",
                    partition_data=[PartitionProduceData(index=0, records=batch()), PartitionProduceData(index=8, records=batch())],
                )
            ],
        ),
        9,
    ),
    ("wrong CRC", produce("one", _broken(batch(), 17)), 9),
    ("wrong magic", produce("one", _broken(batch(), 16)), 9),
    ("two batches", produce("one", memoryview(bytearray(bytes(batch()) + bytes(batch())))), 9),
    *(
        (f"zstd, {len(batches)} batches v{version}", produce("one", memoryview(bytearray(b"".join(batches)))), version)
        for version in (6, 9)
        for batches in ([ZSTD], [ZSTD, ZSTD], [ZSTD, PLAIN], [PLAIN, ZSTD])
    ),
    ("control batch", produce("one", batch(is_control=True)), 9),
    ("transactional without id", produce("one", batch(is_transactional=True, base_sequence=0, **IDEMPOTENT)), 9),
]


def fetch(name: str, *partitions: FetchPartition, version: int = 12, **fields: Any) -> FetchRequest:
    given = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1_000_000, **fields}
    return FetchRequest(topics=[FetchTopic(topic=name, partitions=list(partitions))], **given)


def at(offset: int, partition: int = 0, **fields: Any) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, **{"partition_max_bytes": 100_000, **fields})


END_OFFSET = 1000
FETCH: list[Row] = [
    ("beyond the end", fetch("one", at(END_OFFSET)), 12),
    ("negative offset", fetch("one", at(-1)), 12),
    ("very negative offset", fetch("one", at(-5)), 12),
    ("unknown topic", fetch("missing", at(0)), 12),
    ("unknown partition", fetch("one", at(0, 9)), 12),
    ("negative partition", fetch("one", at(0, -1)), 12),
    ("unknown topic id", FetchRequest(topics=[FetchTopic(topic_id=UNKNOWN_ID, partitions=[at(0)])], max_bytes=1000), 13),
    ("no topics", FetchRequest(max_bytes=1000), 12),
    ("a topic without partitions", fetch("one"), 12),
    ("isolation level 5", fetch("three", at(0, 1), isolation_level=5), 12),
    ("isolation level -1", fetch("three", at(0, 1), isolation_level=-1), 12),
    ("leader epoch -2", fetch("three", at(0, 1, current_leader_epoch=-2)), 12),
    ("leader epoch 99", fetch("three", at(0, 1, current_leader_epoch=99)), 12),
    *(
        (f"last fetched epoch 7, isolation level {level}", fetch("three", at(0, 1, last_fetched_epoch=7), isolation_level=level), 12)
        for level in (0, 1)
    ),
    ("last fetched epoch -2, beyond the end", fetch("three", at(END_OFFSET, 1, last_fetched_epoch=-2)), 12),
    ("last fetched epoch -2", fetch("three", at(0, 1, last_fetched_epoch=-2)), 12),
    ("session epoch 5 without a session", fetch("three", at(0, 1), session_id=0, session_epoch=5), 12),
    ("unknown session", fetch("three", at(0, 1), session_id=77, session_epoch=5), 12),
    ("session epoch -2", fetch("three", at(0, 1), session_epoch=-2), 12),
    ("replica id -3", fetch("three", at(0, 1), replica_id=-3), 12),
    ("replica id 9", fetch("three", at(0, 1), replica_id=9), 12),
    *(
        (f"isolation level {level}, {name} v{version}", fetch(topic_name, asked, isolation_level=level), version)
        for version in (4, 6, 10, 12)
        for level in (0, 1)
        for name, topic_name, asked in (
            ("the beginning", "three", at(0)),
            ("beyond the end", "three", at(END_OFFSET)),
            ("an unknown partition", "three", at(0, 9)),
            ("an unknown topic", "missing", at(0)),
            ("a fenced epoch", "three", at(0, current_leader_epoch=99)),
            ("records", "one", at(3)),
            ("a negative offset", "one", at(-1)),
            ("a topic with zstd", "zstd", at(0)),
            ("beyond the end of one with zstd", "zstd", at(END_OFFSET)),
            ("an unknown partition of one with zstd", "zstd", at(0, 9)),
        )
    ),
    ("no room", fetch("three", at(0, 1, partition_max_bytes=-1), max_bytes=-1), 12),
    ("negative wait and minimum", fetch("three", at(0, 1), max_wait_ms=-1, min_bytes=-1), 12),
]


def metadata(*names: str | None, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False, **fields)


METADATA: list[Row] = [
    ("no topics", metadata(), 9),
    ("unknown topic", metadata("missing"), 9),
    ("bad names", metadata("a/b", "", "..", "n" * 250), 9),
    ("a topic twice", metadata("one", "one"), 9),
    ("null name", metadata(None), 10),
    ("null name v12", metadata(None), 12),
    ("unknown id", MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=UNKNOWN_ID)], allow_auto_topic_creation=False), 12),
    (
        "unknown id twice",
        MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=UNKNOWN_ID)] * 2, allow_auto_topic_creation=False),
        12,
    ),
    (
        "name and id",
        MetadataRequest(topics=[MetadataRequestTopic(name="one", topic_id=UNKNOWN_ID)], allow_auto_topic_creation=False),
        12,
    ),
    (
        "name or id",
        MetadataRequest(
            topics=[MetadataRequestTopic(name=None, topic_id=UNKNOWN_ID), MetadataRequestTopic(name="one")],
            allow_auto_topic_creation=False,
        ),
        12,
    ),
    ("operations", metadata("one", "missing", include_topic_authorized_operations=True), 9),
    ("id in an old version", MetadataRequest(topics=[MetadataRequestTopic(name="one", topic_id=UNKNOWN_ID)]), 10),
    ("bad name, may be created", MetadataRequest(topics=[MetadataRequestTopic(name="a/b")], allow_auto_topic_creation=True), 9),
]


ID_PAIRS = [(-1, -1), (-5, -5), (-1, 0), (0, -1), (5, 5), (-2, -1), (-1, -2), (-2, 0), (0, -2), (INT32_MAX, 32767)]
PRODUCER_IDS: list[Row] = [
    (
        f"producer id {producer_id}, epoch {epoch}",
        InitProducerIdRequest(transactional_id=None, producer_id=producer_id, producer_epoch=epoch),
        4,
    )
    for producer_id, epoch in ID_PAIRS
]
PRODUCER_IDS.append(("empty transactional id", InitProducerIdRequest(transactional_id=""), 4))
PRODUCER_IDS.append(("negative timeout", InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1), 4))


def epochs(name: str, *asked: tuple[int, int, int], replica_id: int = -1) -> OffsetForLeaderEpochRequest:
    partitions = [
        OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch) for index, current, epoch in asked
    ]
    return OffsetForLeaderEpochRequest(replica_id=replica_id, topics=[OffsetForLeaderTopic(topic=name, partitions=partitions)])


EPOCHS: list[Row] = [
    ("no topics", OffsetForLeaderEpochRequest(topics=[]), 4),
    ("a topic without partitions", epochs("one"), 4),
    ("epochs", epochs("one", *((0, -1, epoch) for epoch in (-2, -1, 0, 1, 99))), 4),
    ("current epochs", epochs("three", (0, -2, 0), (1, 99, 0), (2, -7, 0)), 4),
    ("unknown partitions", epochs("one", (9, -1, 0), (-1, -1, 0)), 4),
    ("unknown topic", epochs("missing", (0, -1, 0)), 4),
    ("replica id -7", epochs("one", (0, -1, 0), replica_id=-7), 4),
]
