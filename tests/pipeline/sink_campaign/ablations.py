"""What the sink would be without one of its rules: the campaign has to find each. Installed in Spark's Python processes by `gated_sink`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from barnabas.spark.client.transaction import TransactionWriter
from barnabas.spark.sink import protocol
from barnabas.spark.sink.ledger import Ledger, State

ABLATION = "BARNABAS_TEST_ABLATION"
"""The environment variable with the name of one of ABLATIONS."""


def _no_attempt() -> None:
    """All attempts at a task have the same transactional id: a twin fences the attempt that Spark has chosen."""
    write = protocol.write
    protocol.write = lambda options, plan, work, batches: write(options, plan, work._replace(attempt=0), batches)


def _no_decision_is_read() -> None:
    """An abort ends all transactions whose messages it has, although they may be decided."""
    read, abort = Ledger.read, protocol.abort

    def reads_nothing(ledger: Ledger) -> State:
        return read(ledger)._replace(decision=None)

    def abort_all(*arguments: Any) -> None:
        Ledger.read = reads_nothing  # type: ignore[method-assign]
        try:
            abort(*arguments)
        finally:
            Ledger.read = read  # type: ignore[method-assign]

    protocol.abort = abort_all


def _no_part() -> None:
    """Tasks write no record into the ledger: recovery cannot see which transactions were committed."""
    write = TransactionWriter.write

    def write_rows(writer: TransactionWriter, topic: str, partition: int, batch: Any) -> None:
        if topic != _ledger_topic():
            write(writer, topic, partition, batch)

    TransactionWriter.write = write_rows  # type: ignore[method-assign]


def _ledger_topic() -> str:
    from barnabas.spark.sink.options import DEFAULT_LEDGER

    return DEFAULT_LEDGER


def _late_decision() -> None:
    """The transactions are committed first, the decision is written afterwards."""
    decide, finish = Ledger.decide, Ledger.finish
    late: list[tuple[Any, Any]] = []

    def decide_later(_: Ledger, decision: Any, superseded: Any = ()) -> None:
        late.append((decision, superseded))

    def decide_and_finish(ledger: Ledger, decision: Any) -> None:
        decide(ledger, *late.pop())
        finish(ledger, decision)

    Ledger.decide, Ledger.finish = decide_later, decide_and_finish  # type: ignore[method-assign]


def _no_generation() -> None:
    """All runs of all batches have generation 0, and every decision counts."""
    state_of, begin = Ledger._state_of, Ledger.begin_generation

    def all_count(records: Any) -> State:
        return state_of([each for each in records if each[1] != "generation"])

    def begin_and_forget(ledger: Ledger) -> State:
        Ledger._state_of = staticmethod(state_of)  # type: ignore[method-assign]
        begin(ledger)
        Ledger._state_of = staticmethod(all_count)  # type: ignore[method-assign]
        return ledger.read()._replace(generation=0)

    Ledger._state_of = staticmethod(all_count)  # type: ignore[method-assign]
    Ledger.begin_generation = begin_and_forget  # type: ignore[method-assign]
    Ledger.is_over = lambda *_: False  # type: ignore[method-assign]


ABLATIONS: dict[str, Callable[[], None]] = {
    "attempt": _no_attempt,
    "abort": _no_decision_is_read,
    "part": _no_part,
    "order": _late_decision,
    "generation": _no_generation,
}


def install() -> None:
    """The ablation that the environment names, if it does."""
    name = os.environ.get(ABLATION)
    if name:
        ABLATIONS[name]()
