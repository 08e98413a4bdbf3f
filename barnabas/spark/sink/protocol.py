"""How a batch is written once: recovery before it is planned, tasks that leave their transactions open, and the decision.

    plan      take a generation; complete what was decided, abort what was not
    task      a transaction: the rows, and a record of them in the ledger; it stays open
    commit    the decision in the ledger; then end the transactions; then "done"
    abort     end the transactions, unless the batch is decided

Spark runs each of them in another process. Only messages, options and the ledger connect them. A batch that Spark runs again after it was
decided is not written again: its tasks skip what the ledger has. A decided transaction that has timed out before it could be committed is
the exception: its task writes again, and has to write the same rows.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ...protocol.errors import ErrorCode
from ..client.cluster import Cluster, describe
from ..client.transaction import OpenTransaction, TransactionWriter, end_transaction, init_producer, list_open
from ..errors import BarnabasError, BrokerError
from ..records.encode import encode_batches
from .ledger import DecidedPart, Decision, Ledger, LedgerError, Part, check_owner
from .options import SinkOptions
from .rows import NO_TIME_MS, RowError, rows_of

MARGIN_S = 60.0
"""A decision is refused if a transaction has less time left, or less than a tenth of its timeout."""


class ChangedBatchError(BarnabasError):
    """A decided batch cannot be completed, because its plan has given other rows this time."""


class Work(NamedTuple):
    """Which task of which query this is. `batch` is None outside of a stream."""

    query: str
    batch: int | None
    partition: int
    attempt: int


class Plan(NamedTuple):
    """What tasks need to know. `lost` are the partitions of `decided` whose transactions were not committed."""

    generation: int
    query: str
    decided: Decision | None
    lost: frozenset[int]


class Written(NamedTuple):
    """What a task tells: `transaction` is None if it has written nothing. `begun_s` is the wall clock before the first write. `lost`: what
    has to be written again of a batch that was decided before."""

    generation: int
    query: str
    partition: int
    transaction: OpenTransaction | None
    rows: int
    checksum: int
    begun_s: float
    lost: frozenset[int] = frozenset()


# -- before the batch ----------------------------------------------------------------------------------------------------


def recover(options: SinkOptions) -> Plan:
    """Take the next generation of the sink, complete what was decided before, and abort all else that is open. Raises BrokerError,
    LedgerError, OptionError."""
    cluster = options.open()
    ledger = Ledger(cluster, options.ledger, options.sink)
    ledger.prepare()
    state = ledger.begin_generation()
    decided = state.decision
    is_incomplete = decided is not None and not decided.is_done
    unsure: set[int] = set()
    if is_incomplete:
        assert decided is not None
        ended = {number: end_transaction(cluster, part.transaction, is_commit=True) for number, part in decided.parts.items()}
        unsure = {number for number, code in ended.items() if code is not ErrorCode.NONE}
    _abort_open(cluster, options, range(state.generation), except_for=decided if is_incomplete else None)
    lost: frozenset[int] = frozenset()
    if is_incomplete:
        assert decided is not None
        if unsure:  # it has timed out, or was committed so long ago that its id has expired: the ledger knows
            found = ledger.read_parts()
            lost = frozenset(number for number in unsure if not _is_there(decided, decided.parts[number], found.get(number)))
        if not lost:
            ledger.adopt(decided, state.generation)
    return Plan(state.generation, state.query, decided, lost)


def _is_there(decided: Decision, part: DecidedPart, found: Part | None) -> bool:
    return found is not None and (found.batch, found.rows, found.checksum) == (decided.batch, part.rows, part.checksum)


def _abort_open(cluster: Cluster, options: SinkOptions, generations: range, *, except_for: Decision | None) -> None:
    """Abort the sink's open transactions of these generations, and fence their writers. Those of later ones are a newer driver's."""
    kept = set() if except_for is None else {part.transaction.transactional_id for part in except_for.parts.values()}
    own = re.compile(rf"{re.escape(options.sink)}\.(\d+)\.\d+\.\d+")
    for each in list_open(cluster, f"{options.sink}."):
        found = own.fullmatch(each.transactional_id)  # an id that only begins so is another application's
        if found and int(found[1]) in generations and each.transactional_id not in kept:
            init_producer(cluster, each.transactional_id, options.timeout_ms)


# -- a task --------------------------------------------------------------------------------------------------------------


def write(options: SinkOptions, plan: Plan, work: Work, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write the rows of a task into a transaction that stays open. Raises what its parts raise, and then the transaction is aborted."""
    check_owner(options.sink, plan.query, work.query)
    expected = _expected(options, plan, work)
    if expected is SKIPPED:
        return Written(plan.generation, work.query, work.partition, None, 0, 0, time.time(), plan.lost)
    task = _Task(options, plan, work)
    try:
        written = task.run(batches)
        if isinstance(expected, DecidedPart) and (written.rows, written.checksum) != (expected.rows, expected.checksum):
            raise ChangedBatchError(
                f"batch {work.batch} of the sink {options.sink} was decided, and the transaction of its partition {work.partition} timed "
                f"out before it was committed; written again it has other rows ({written.rows} instead of {expected.rows}, or others), "
                "because the query's plan is not deterministic"
            )
    except BaseException:
        task.give_up()
        raise
    return written


SKIPPED = object()


def _expected(options: SinkOptions, plan: Plan, work: Work) -> object:
    """None: write. SKIPPED: the rows are there. A DecidedPart: write, and it has to become that."""
    decided = plan.decided
    if decided is None or work.batch is None or work.batch > decided.batch:
        if plan.lost:
            assert decided is not None
            raise LedgerError(f"batch {decided.batch} of the sink {options.sink} is not complete, and Spark does not repeat it")
        return None
    if work.batch < decided.batch:
        raise LedgerError(
            f"Spark runs batch {work.batch}, and the sink {options.sink} has batch {decided.batch} already: the checkpoint is an old copy"
        )
    if work.partition in plan.lost:
        return decided.parts[work.partition]
    return SKIPPED


class _Task:
    """One task's transaction. It begins with the first row."""

    def __init__(self, options: SinkOptions, plan: Plan, work: Work) -> None:
        self._options = options
        self._plan = plan
        self._work = work
        self._cluster = options.open()
        self._writer: TransactionWriter | None = None
        self._batches_count = 0

    def run(self, batches: Iterable[pa.RecordBatch]) -> Written:
        plan, work, options = self._plan, self._work, self._options
        begun_s = time.time()
        rows_count = checksum = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            for rows in rows_of(batch, options.topic, takes_timestamps=options.takes_timestamps):
                if self._writer is None:
                    begun_s = time.time()
                checksum = (checksum + rows.checksum()) & (2**64 - 1)
                rows_count += len(rows.key)
                found = self._cluster.topic(rows.topic)
                if found is None:
                    raise RowError(f"topic {rows.topic} does not exist")
                self._batches_count += 1
                of_null = (work.partition + self._batches_count) % found.partitions_count
                for partition, part in rows.by_partition(found.partitions_count, of_null=of_null):
                    times = np.full(len(part.key), int(time.time() * 1000), np.int64)
                    if part.time_ms is not None:
                        times = np.where(part.time_ms == NO_TIME_MS, times, part.time_ms)
                    encoded = encode_batches(
                        part.key, part.value, part.headers, times, batch_bytes=options.batch_bytes, codec=options.codec
                    )
                    for each in encoded:
                        self._open().write(rows.topic, partition, each)
        if self._writer is None:
            return Written(plan.generation, work.query, work.partition, None, 0, 0, begun_s)
        if work.batch is not None:
            ledger = Ledger(self._cluster, options.ledger, options.sink)
            part_of_batch = Part(work.batch, plan.generation, rows_count, checksum)
            self._writer.write(ledger.topic, ledger.partition, ledger.part_batch(work.partition, part_of_batch))
        self._writer.flush()
        return Written(plan.generation, work.query, work.partition, self._writer.opened, rows_count, checksum, begun_s)

    def give_up(self) -> None:
        """Abort what was written. Recovery does it if this cannot."""
        if self._writer is not None:
            try:
                end_transaction(self._cluster, self._writer.opened, is_commit=False)
            except BrokerError:
                pass

    def _open(self) -> TransactionWriter:
        if self._writer is None:
            options, generation = self._options, self._plan.generation
            name = f"{options.sink}.{generation}.{self._work.partition}.{self._work.attempt}"
            ledger = Ledger(self._cluster, options.ledger, options.sink)
            # Spark kills the tasks of a failed job seconds later, at any moment. So a task that is late must not open a transaction: if
            # it is killed before the check below, nobody ends what it has opened.
            self._check_not_over(ledger)
            self._writer = TransactionWriter(self._cluster, init_producer(self._cluster, name, options.timeout_ms))
            self._writer.begin(ledger.topic, ledger.partition)
            # Who begins a generation, or decides one, looks for open transactions afterwards. So either this one is open by then and is
            # found, or it finds here that it is too late: a task that was held up leaves nothing open, which readers would wait for.
            self._check_not_over(ledger)
        return self._writer

    def _check_not_over(self, ledger: Ledger) -> None:
        if ledger.is_over(self._plan.generation):
            raise LedgerError(f"a task of the sink {self._options.sink} is too late: its batch is decided, or a newer driver has begun")


# -- after the tasks -----------------------------------------------------------------------------------------------------


def commit(options: SinkOptions, batch: int | None, messages: Sequence[Written]) -> None:
    """Decide the batch and end its transactions. If it raises after the decision, the next run of the batch completes it."""
    written = [message for message in messages if message.transaction is not None]
    _check_complete(options, batch, messages)
    if not written:
        return
    cluster = options.open()
    ledger = Ledger(cluster, options.ledger, options.sink)
    generation, query = written[0].generation, written[0].query
    if batch is not None:
        ledger.bind(query)
    _check_time(options, written)
    before = ledger.read()
    parts = {each.partition: DecidedPart(each.transaction, each.rows, each.checksum) for each in written if each.transaction is not None}
    amended = before.decision if before.decision is not None and before.decision.batch == batch else None
    all_parts = parts if amended is None else {**amended.parts, **parts}
    decision = Decision(-1 if batch is None else batch, generation, query, all_parts)
    superseded = before.superseded | ({before.decision.generation} if before.decision is not None else set())
    ledger.decide(decision, superseded)
    for number, part in parts.items():
        code = end_transaction(cluster, part.transaction, is_commit=True)
        if code is not ErrorCode.NONE:
            raise BrokerError(
                f"batch {batch} of the sink {options.sink} is decided, and the transaction of partition {number} cannot be committed: "
                f"{describe(code)}; run the query again"
            )
    _abort_open(cluster, options, range(generation + 1), except_for=decision)
    if batch is None:
        ledger.forget(decision.generation)
    else:
        ledger.finish(decision)


def abort(options: SinkOptions, batch: int | None, messages: Sequence[Written]) -> None:
    """Abort what the tasks have written, unless it is decided. Tasks of a stream may still run: the next plan aborts theirs. A write
    outside of a stream has no next plan: one more generation makes tasks that still run too late, and ends the rest."""
    if batch is None:
        plan = recover(options)
        Ledger(options.open(), options.ledger, options.sink).forget(plan.generation)
        return
    written = [message for message in messages if message.transaction is not None]
    if not written:
        return
    cluster = options.open()
    decision = Ledger(cluster, options.ledger, options.sink).read().decision
    decided = set() if decision is None else {part.transaction for part in decision.parts.values()}
    for each in written:
        if each.transaction is not None and each.transaction not in decided:
            end_transaction(cluster, each.transaction, is_commit=False)


def _check_complete(options: SinkOptions, batch: int | None, messages: Iterable[Written]) -> None:
    """Spark may run a decided batch again with fewer tasks: it must not commit the batch without the rows of those that are missing."""
    lost = frozenset[int]().union(*(each.lost for each in messages))
    missing = lost - {each.partition for each in messages if each.transaction is not None}
    if missing:
        raise LedgerError(
            f"batch {batch} of the sink {options.sink} was decided, and the transaction of its partition {min(missing)} timed out before "
            "it was committed; the query has fewer partitions now: run it with as many as before"
        )


def _check_time(options: SinkOptions, written: Iterable[Written]) -> None:
    margin_s = min(MARGIN_S, options.timeout_ms / 10_000)
    for each in written:
        left_s = options.timeout_ms / 1000 - (time.time() - each.begun_s)
        if left_s < margin_s:
            raise BrokerError(
                f"partition {each.partition} was begun {time.time() - each.begun_s:.0f} s ago, and its transaction ends by "
                f"kafka.transaction.timeout.ms={options.timeout_ms}: raise it, or make batches smaller"
            )
