"""Runs in Spark's Python processes: the sink, each of whose steps visits the campaign's gate keeper, who may hold the process there.

`GatedSource` is the product's data source under another name. What it gives to tasks and to the processes that commit is of this module, so
that each of them imports it, and the import puts a visit before or after every step of the protocol. The product knows nothing of it.

A point is named `<phase>:<step>`: `plan`, `task`, `commit`, `abort`; POINTS lists them all.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.spark.client.cluster import Cluster
from barnabas.spark.client.transaction import TransactionWriter
from barnabas.spark.data_source import BatchWriter, DefaultSource, StreamWriter
from barnabas.spark.sink import protocol
from barnabas.spark.sink.ledger import Ledger
from tests.pipeline.sink_campaign import ablations, gates

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

POINTS = (
    "plan:begin", "plan:generation", "plan:ended", "plan:aborted", "plan:adopted", "plan:end",
    "task:begin", "task:opening", "task:opened", "task:written", "task:flushed", "task:ended", "task:end",
    "commit:begin", "commit:bound", "commit:deciding", "commit:decided", "commit:ended", "commit:aborted", "commit:finishing",
    "commit:finished", "commit:end",
    "abort:begin", "abort:ended", "abort:end",
)  # fmt: skip
"""`plan:ended` is after each EndTxn of a plan, `plan:aborted` after each transaction that it aborts; so it is with the other phases.
`commit:end` is before Spark writes its own commit log entry."""

DEADLINE_S = "BARNABAS_TEST_DEADLINE_S"
"""The environment variable with the seconds after which a request to brokers that are away fails, instead of the product's."""

_phase = ""
_facts: dict[str, object] = {}
"""What this process does now: one task, plan or commit at a time."""


class GatedSource(DefaultSource):
    """`format("gated")`."""

    @classmethod
    def name(cls) -> str:
        return "gated"

    def streamWriter(self, schema: StructType, overwrite: bool) -> GatedWriter:  # noqa: N802 (Spark's name)
        writer = super().streamWriter(schema, overwrite)
        return GatedWriter(writer._options, writer._plan)

    def writer(self, schema: StructType, overwrite: bool) -> GatedBatchWriter:
        writer = super().writer(schema, overwrite)
        return GatedBatchWriter(writer._options, writer._plan)


class GatedWriter(StreamWriter):
    """The product's, in this module: what unpickles it imports the gates."""


class GatedBatchWriter(BatchWriter):
    """The product's, of `df.write`."""


def visit(point: str) -> None:
    """Returns when the keeper lets this process pass."""
    assert point in POINTS, point
    gates.visit(point, **_facts)


def _as_phase(name: str, function: Callable[..., Any], facts_of: Callable[..., dict[str, object]]) -> Callable[..., Any]:
    @functools.wraps(function)
    def gated(*arguments: Any, **options: Any) -> Any:
        global _phase, _facts
        _phase, _facts = name, facts_of(*arguments)
        try:
            visit(f"{name}:begin")
            result = function(*arguments, **options)
            visit(f"{name}:end")
            return result
        finally:
            _phase, _facts = "", {}

    return gated


def _before(owner: Any, name: str, step: str | Callable[[], str | None]) -> None:
    function = getattr(owner, name)

    @functools.wraps(function)
    def gated(*arguments: Any, **options: Any) -> Any:
        found = step if isinstance(step, str) else step()
        if _phase and found:
            visit(f"{_phase}:{found}")
        return function(*arguments, **options)

    setattr(owner, name, gated)


def _after(owner: Any, name: str, step: str | Callable[[], str]) -> None:
    function = getattr(owner, name)

    @functools.wraps(function)
    def gated(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        if _phase:
            visit(f"{_phase}:{step if isinstance(step, str) else step()}")
        return result

    setattr(owner, name, gated)


def _after_init(owner: Any, change: Callable[[Any], None]) -> None:
    init = owner.__init__

    @functools.wraps(init)
    def changed(made: Any, *arguments: Any, **options: Any) -> None:
        init(made, *arguments, **options)
        change(made)

    owner.__init__ = changed


def _task_facts(_options: object, _plan: object, work: protocol.Work, *_: object) -> dict[str, object]:
    return {"batch": work.batch, "partition": work.partition, "attempt": work.attempt}


def _install() -> None:
    ablations.install()
    if DEADLINE_S in os.environ:
        _after_init(Cluster, lambda cluster: setattr(cluster, "deadline_s", float(os.environ[DEADLINE_S])))
    _after(Ledger, "begin_generation", "generation")
    _after(Ledger, "adopt", "adopted")
    _after(Ledger, "bind", "bound")
    _before(Ledger, "decide", "deciding")
    _after(Ledger, "decide", "decided")
    _before(Ledger, "finish", "finishing")
    _after(Ledger, "finish", "finished")
    _after(TransactionWriter, "write", "written")
    _after(TransactionWriter, "flush", "flushed")
    _after(protocol, "end_transaction", "ended")
    _before(protocol, "init_producer", lambda: "opening" if _phase == "task" else None)
    _after(protocol, "init_producer", lambda: "opened" if _phase == "task" else "aborted")
    protocol.recover = _as_phase("plan", protocol.recover, lambda *_: {})
    protocol.write = _as_phase("task", protocol.write, _task_facts)
    protocol.commit = _as_phase("commit", protocol.commit, lambda _, batch, messages: {"batch": batch, "messages": len(messages)})
    protocol.abort = _as_phase("abort", protocol.abort, lambda _, batch, messages: {"batch": batch, "messages": len(messages)})


_install()
