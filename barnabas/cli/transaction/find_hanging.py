"""Find transactions that nobody will end: open for longer than a transaction may be, and unknown to any coordinator.

They hold back read_committed consumers for ever; `barnabas transaction abort` ends one. What is compared is what Kafka's
`kafka-transactions.sh find-hanging` compares: the producers of partitions, and where coordinators still have to write markers."""

from __future__ import annotations

import argparse
import time
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import get_topics, partitions_of, topics_of
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError, check
from barnabas.cli.output import Column, Output, human_duration
from barnabas.cli.settings import resolve
from barnabas.cli.times import parse_duration_ms
from barnabas.cli.transaction.producer_states import producer_states
from protocol.errors import ErrorCode
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.list_transactions import ListTransactionsRequest

COLUMNS = (
    Column("topic", "TOPIC"),
    Column("partition", "PARTITION", is_number=True),
    Column("start_offset", "START OFFSET", is_number=True),
    Column("producer_id", "PRODUCER ID", is_number=True),
    Column("producer_epoch", "EPOCH", is_number=True),
    Column("coordinator_epoch", "COORDINATOR EPOCH", is_number=True, is_wide=True),
    Column("open_for_ms", "LAST RECORD BEFORE", human_duration, is_number=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("topics", nargs="*", metavar="TOPIC", help="only in these (all)")
    add("-p", "--partition", "--partitions", type=int, action="append", default=[], metavar="N", help="only these of one topic")
    add("--broker", "--broker-id", type=int, metavar="ID", help="only partitions with a replica there")
    add("--older-than", default="15m", metavar="DURATION", help="transaction.max.timeout.ms of the brokers (15m)")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    older_than_ms = parse_duration_ms(options.older_than)
    if options.partition and len(options.topics) != 1:
        raise NotUnderstoodError("--partition is of one topic")
    with Connection(resolve(options)) as connection:
        topics = get_topics(connection, options.topics) if options.topics else topics_of(connection)
        chosen = [
            (topic, index)
            for topic, index in partitions_of(topics)
            if (not options.partition or index in options.partition)
            and (options.broker is None or options.broker in topics[topic].partitions[index].replicas)
        ]
        if missing := sorted(set(options.partition) - {index for _, index in partitions_of(topics)}):
            raise NotUnderstoodError(f"topic {options.topics[0]} has no partition {', '.join(map(str, missing))}")
        now_ms = time.time_ns() // 1_000_000
        old = [
            (topic, index, each)
            for topic, index, each in producer_states(connection, topics, chosen)
            if each.current_txn_start_offset >= 0 and now_ms - each.last_timestamp > older_than_ms
        ]
        known = _known(connection, {each.producer_id for _, _, each in old}) if old else set()
    rows: list[dict[str, Any]] = [
        {
            "topic": topic,
            "partition": index,
            "start_offset": each.current_txn_start_offset,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "coordinator_epoch": each.coordinator_epoch,
            "open_for_ms": now_ms - each.last_timestamp,
        }
        for topic, index, each in old
        if (each.producer_id, topic, index) not in known
    ]
    Output(options.output).rows(sorted(rows, key=lambda row: (row["topic"], row["partition"], row["start_offset"])), COLUMNS)
    return DONE


def _known(connection: Connection, producer_ids: set[int]) -> set[tuple[int, str, int]]:
    """Producer id, topic and partition of the transactions of these that their coordinators have still to end."""
    known: set[tuple[int, str, int]] = set()
    for broker_id in sorted(connection.metadata().brokers):
        wire = connection.wire(broker_id)
        listed = wire.request(ListTransactionsRequest(producer_id_filters=sorted(producer_ids)))
        check(listed.error_code, of=f"broker {broker_id}")
        names = [each.transactional_id for each in listed.transaction_states]
        if not names:
            continue
        for state in wire.request(DescribeTransactionsRequest(transactional_ids=names)).transaction_states:
            if state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                check(state.error_code, of=state.transactional_id)
            known |= {(state.producer_id, topic.topic, index) for topic in state.topics for index in topic.partitions}
    return known
