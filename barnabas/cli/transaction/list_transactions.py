"""List transactional ids, with the state of their transactions, as their coordinators know them."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError, RefusedError, check
from barnabas.cli.output import Column, Output
from barnabas.cli.settings import resolve
from barnabas.cli.times import parse_duration_ms
from protocol.messages.list_transactions import ListTransactionsRequest

COLUMNS = (
    Column("transactional_id", "TRANSACTIONAL ID"),
    Column("coordinator", "COORDINATOR", is_number=True),
    Column("producer_id", "PRODUCER ID", is_number=True),
    Column("state", "STATE"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--state", action="append", default=[], metavar="STATE", help="only these: Ongoing, Empty, CompleteCommit …")
    add("--longer-than", metavar="DURATION", help="only transactions that are open for longer, such as 5m")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    duration_ms = -1 if options.longer_than is None else parse_duration_ms(options.longer_than)
    rows = []
    with Connection(resolve(options)) as connection:
        for broker_id in sorted(connection.metadata().brokers):
            wire = connection.wire(broker_id)
            if duration_ms >= 0 and not wire.serves(ListTransactionsRequest, 1):
                raise RefusedError("the brokers do not know for how long a transaction is open (KIP-994)")
            answer = wire.request(ListTransactionsRequest(state_filters=options.state, duration_filter=duration_ms))
            check(answer.error_code, of=f"broker {broker_id}")
            if answer.unknown_state_filters:
                raise NotUnderstoodError(f"--state: {', '.join(answer.unknown_state_filters)} means nothing to the broker")
            rows += [
                {
                    "transactional_id": each.transactional_id,
                    "coordinator": broker_id,
                    "producer_id": each.producer_id,
                    "state": each.transaction_state,
                }
                for each in answer.transaction_states
            ]
    Output(options.output).rows(sorted(rows, key=lambda row: str(row["transactional_id"])), COLUMNS)
    return DONE
