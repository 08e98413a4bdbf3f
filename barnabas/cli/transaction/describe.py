"""Describe transactional ids: producer, state, since when the transaction is open, and its partitions."""

from __future__ import annotations

import argparse
import time
from typing import Any

from barnabas.cli import arguments
from barnabas.cli.connection import Connection
from barnabas.cli.coordinators import TRANSACTION, coordinator_of
from barnabas.cli.errors import DONE, RefusedError
from barnabas.cli.output import Column, Output, human_duration
from barnabas.cli.settings import resolve
from protocol.errors import ErrorCode
from protocol.messages.describe_transactions import DescribeTransactionsRequest

COLUMNS = (
    Column("transactional_id", "TRANSACTIONAL ID"),
    Column("coordinator", "COORDINATOR", is_number=True),
    Column("producer_id", "PRODUCER ID", is_number=True),
    Column("producer_epoch", "EPOCH", is_number=True),
    Column("state", "STATE"),
    Column("timeout_ms", "TIMEOUT", human_duration, is_number=True),
    Column("open_for_ms", "OPEN FOR", human_duration, is_number=True),
    Column("partitions", "PARTITIONS"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="+", metavar="TRANSACTIONAL_ID")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    with Connection(resolve(options)) as connection:
        rows = [_describe(connection, name) for name in dict.fromkeys(options.ids)]
    Output(options.output).rows(rows, COLUMNS)
    return DONE


def _describe(connection: Connection, name: str) -> dict[str, Any]:
    coordinator = coordinator_of(connection, name, TRANSACTION)
    (state,) = connection.wire(coordinator).request(DescribeTransactionsRequest(transactional_ids=[name])).transaction_states
    if state.error_code != ErrorCode.NONE:
        raise RefusedError(f"{name}: {ErrorCode(state.error_code).name}; barnabas transaction list has those that are there")
    begun_ms = state.transaction_start_time_ms
    return {
        "transactional_id": name,
        "coordinator": coordinator,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "state": state.transaction_state,
        "timeout_ms": state.transaction_timeout_ms,
        "open_for_ms": None if begun_ms < 0 else max(time.time_ns() // 1_000_000 - begun_ms, 0),
        "partitions": sorted(f"{topic.topic}-{index}" for topic in state.topics for index in topic.partitions),
    }
