"""List the producers of a topic's partitions, and where their open transactions begin: what holds back read_committed consumers."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.cluster_facts import get_topics
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError
from barnabas.cli.output import Column, Output
from barnabas.cli.settings import resolve
from barnabas.cli.times import to_text
from barnabas.cli.transaction.producer_states import producer_states

COLUMNS = (
    Column("partition", "PARTITION", is_number=True),
    Column("producer_id", "PRODUCER ID", is_number=True),
    Column("producer_epoch", "EPOCH", is_number=True),
    Column("last_sequence", "LAST SEQUENCE", is_number=True),
    Column("last_timestamp", "LAST RECORD", to_text),
    Column("coordinator_epoch", "COORDINATOR EPOCH", is_number=True, is_wide=True),
    Column("transaction_start_offset", "OPEN SINCE OFFSET", is_number=True),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("topic", metavar="TOPIC")
    add("-p", "--partition", "--partitions", type=int, action="append", default=[], metavar="N", help="only these (all)")
    add("--open", action="store_true", help="only those with an open transaction")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    with Connection(resolve(options)) as connection:
        topics = get_topics(connection, [options.topic])
        partitions = topics[options.topic].partitions
        if unknown := sorted(set(options.partition) - partitions.keys()):
            raise NotUnderstoodError(f"topic {options.topic} has no partition {', '.join(map(str, unknown))}")
        chosen = [(options.topic, index) for index in options.partition or sorted(partitions)]
        rows = [
            {
                "partition": index,
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "last_sequence": each.last_sequence,
                "last_timestamp": None if each.last_timestamp < 0 else each.last_timestamp,
                "coordinator_epoch": each.coordinator_epoch,
                "transaction_start_offset": None if each.current_txn_start_offset < 0 else each.current_txn_start_offset,
            }
            for _, index, each in producer_states(connection, topics, chosen)
            if not options.open or each.current_txn_start_offset >= 0
        ]
    Output(options.output).rows(sorted(rows, key=lambda row: (row["partition"] or 0, row["producer_id"] or 0)), COLUMNS)
    return DONE
