"""The size that counts for a consumer's quota is that of the encoded response."""

from __future__ import annotations

from broker.handlers.produce_fetch.fetch_size import SIZE_FIELD_BYTES, response_size
from broker.replication.fetch.fetch_data import FetchTarget, PartitionRead
from protocol import codec
from protocol.errors import ErrorCode
from protocol.messages.fetch import AbortedTransaction, FetchableTopicResponse, FetchResponse, PartitionData
from storage import transaction_index

ABORTED = transaction_index.AbortedTransaction(7, 1, 2, 3)


def read(topic: str, index: int, size: int, *, is_committed: bool = False) -> PartitionRead:
    target = FetchTarget(topic, index, 0, 100, topic.ljust(16, "-").encode(), -1, -1, 0)
    found = PartitionRead(target)
    found.records, found.size_bytes = bytes(size), size
    found.aborted_transactions = [ABORTED, ABORTED] if is_committed else None
    return found


def encoded_size(version: int, reads: list[PartitionRead]) -> int:
    response = FetchResponse()
    for each in reads:
        topic_id = each.target.topic_id if version >= 13 else bytes(16)
        name = "" if version >= 13 else each.target.topic or ""
        if not response.responses or (response.responses[-1].topic, response.responses[-1].topic_id) != (name, topic_id):
            response.responses.append(FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[]))
        aborted = each.aborted_transactions
        listed = None if aborted is None else [AbortedTransaction(producer_id=1, first_offset=1) for _ in aborted]
        partition = PartitionData(partition_index=each.target.partition, aborted_transactions=listed, records=each.records)
        response.responses[-1].partitions.append(partition)
    return len(codec.encode(response, version))


def test_it_is_the_size_of_the_encoded_body_and_kafka_s_four_bytes() -> None:
    reads = [read("a" * 150, 0, 10), read("a" * 150, 1, 1000, is_committed=True), read("b", 0, 100_000), read("b", 1, 0)]

    for version in range(4, 19):
        expected = encoded_size(version, reads) + SIZE_FIELD_BYTES
        assert response_size(version, reads, is_incremental=False) == expected, version


def test_partitions_without_news_do_not_count_in_a_session() -> None:
    reads = [read("a", 0, 10), read("a", 1, 0), read("b", 0, 0)]

    assert response_size(12, reads, is_incremental=True) == encoded_size(12, reads[:1]) + SIZE_FIELD_BYTES


def test_errors_count_in_a_session() -> None:
    failed = read("a", 0, 0)
    failed.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER

    assert response_size(12, [failed], is_incremental=True) == encoded_size(12, [failed]) + SIZE_FIELD_BYTES
