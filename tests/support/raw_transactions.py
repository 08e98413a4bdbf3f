"""Transactions of a client that sends each request itself, by versions below transaction version 2: it may leave some out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch

READ_COMMITTED = 1
LATEST = -1
PRODUCE_TIMEOUT_MS = 30_000

Ask = Callable[[Any, int], Any]
"""Sends a request in this version to the right broker, and returns the answer."""

NOT_YET = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


def init_producer_id(ask: Ask, transactional_id: str, timeout_ms: int) -> tuple[int, int] | None:
    """The producer's id and epoch, None while the coordinator does not serve yet."""
    answer = ask(InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms), 4)
    if answer.error_code in NOT_YET:
        return None
    assert answer.error_code == ErrorCode.NONE
    return answer.producer_id, answer.producer_epoch


def add_partition(ask: Ask, transactional_id: str, producer: tuple[int, int], topic: str) -> None:
    """Add partition 0 to the producer's transaction."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    (added,) = ask(request, 3).results_by_topic_v3_and_below
    assert [each.partition_error_code for each in added.results_by_partition] == [ErrorCode.NONE]


def produce(ask: Ask, transactional_id: str, producer: tuple[int, int], topic: str, *, value: bytes = b"v", age_ms: int = 0) -> ErrorCode:
    """Append the first record of a transaction to partition 0, with a timestamp of `age_ms` ago."""
    records = build_batch(
        [SimpleRecord(None, value, (), int(time.time() * 1000) - age_ms)],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0,
        is_transactional=True,
    )
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[data])
    return ErrorCode(ask(request, 9).responses[0].partition_responses[0].error_code)


def end_transaction(ask: Ask, transactional_id: str, producer: tuple[int, int], *, is_committed: bool) -> ErrorCode:
    request = EndTxnRequest(transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=is_committed)
    return ErrorCode(ask(request, 4).error_code)


def state_of(ask: Ask, transactional_id: str) -> str:
    """As DescribeTransactions tells it; empty while the coordinator does not serve yet."""
    (answer,) = ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0).transaction_states
    assert answer.error_code in (ErrorCode.NONE, *NOT_YET)
    return str(answer.transaction_state or "")


def last_stable_offset(ask: Ask, topic: str) -> int:
    """Of partition 0."""
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)])
    response = ask(ListOffsetsRequest(replica_id=-1, isolation_level=READ_COMMITTED, topics=[asked]), 5)
    offset: int = response.topics[0].partitions[0].offset
    return offset
