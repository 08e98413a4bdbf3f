"""Abort a hanging transaction in one partition, which holds back read_committed consumers and has no coordinator that would end it.

Find it with `barnabas transaction producers TOPIC --open`. The marker is written to this partition alone (kafka-transactions abort); a
transaction that its coordinator still knows ends by itself, after its timeout.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import get_topics
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError, RefusedError, check
from barnabas.cli.output import Output, confirm
from barnabas.cli.settings import resolve_for_change
from barnabas.cli.transaction.producer_states import producer_states
from protocol.messages.describe_producers import ProducerState
from protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("topic", metavar="TOPIC")
    add("-p", "--partition", type=int, required=True, metavar="N")
    add("--start-offset", type=int, required=True, metavar="N", help="where the transaction begins in the partition")
    arguments.add_change(parser, asks=True)
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    name, index = options.topic, options.partition
    with Connection(settings) as connection:
        topics = get_topics(connection, [name])
        partition = topics[name].partitions.get(index)
        if partition is None:
            raise NotUnderstoodError(f"topic {name} has no partition {index}")
        producer = _find(connection, topics, options)
        plan = [f"abort the transaction of producer {producer.producer_id}, open since offset {options.start_offset} of {name}-{index}"]
        if not confirm(plan, dry_run=options.dry_run, yes=options.yes):
            return DONE
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[index])],
            coordinator_epoch=max(producer.coordinator_epoch, 0),  # of a producer without a marker yet it is -1 (TransactionsCommand)
        )
        answer = connection.wire(partition.leader).request(WriteTxnMarkersRequest(markers=[marker]))
    check(answer.markers[0].topics[0].partitions[0].error_code)
    Output("table").line(f"{name}-{index}: aborted")
    return DONE


def _find(connection: Connection, topics: Mapping[str, Any], options: argparse.Namespace) -> ProducerState:
    """Raises RefusedError."""
    states = producer_states(connection, topics, [(options.topic, options.partition)])
    found = [each for _, _, each in states if each.current_txn_start_offset == options.start_offset]
    if not found:
        raise RefusedError(f"no transaction is open since offset {options.start_offset}; barnabas transaction producers --open has them")
    return found[0]
