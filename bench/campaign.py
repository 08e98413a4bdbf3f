"""One sitting: starts and warms the brokers, then runs every row, the products in turn.

On a noisy machine only alternating runs can be compared: both products see the same minutes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import cluster_rows, produce_rows
from bench.cluster_session import ClusterSession
from bench.row import Row
from bench.servers import Product
from bench.session import MeasurementError, Session

WARMUP_RECORDS_100B = 10_000_000
CLUSTER_WARMUP = (cluster_rows.produce(cluster_rows.PARTITIONS), cluster_rows.produce(1), cluster_rows.lock_step)
REHEARSAL_PIECE_SIZE = 1_000_000
SETTLE_S = 1.5  # a deleted topic's files go after one second: what is deleted need not be written


@dataclass(slots=True)
class Result:
    """The values of a row's figures for one product: one element for each run that succeeded in `values`, for each run in `runs`."""

    row: Row
    product: Product
    values: dict[str, list[float]] = field(default_factory=dict)
    runs: list[Mapping[str, float] | None] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0


def measure(
    rows: Sequence[Row],
    products: Sequence[Product],
    *,
    runs: int,
    scale: float,
    warmup: float,
    data_dir: Path | None,
    is_exact: bool = False,
) -> list[Result]:
    """Measures all rows for all products in one sitting. The rows of a cluster come last, on brokers of their own. A row that fails has the
    reason in its notes, and the others continue.

    A long row has fewer runs than `runs`, unless `is_exact`."""
    if data_dir is not None:
        data_dir.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    for session_class, of_class in ((Session, False), (ClusterSession, True)):
        own_rows = [row for row in rows if row.is_cluster is of_class]
        if not own_rows:
            continue
        with tempfile.TemporaryDirectory(prefix="barnabas-bench-", dir=data_dir) as folder, contextlib.ExitStack() as stack:
            sessions = [session_class(product, Path(folder) / product.name, scale) for product in products]
            try:
                for session in sessions:
                    session.directory.mkdir()
                    stack.callback(session.close)
                    session.open()
                for session in sessions:
                    warm(session, warmup)
            except MeasurementError as e:
                _say(f"failed: {e}")
                results += [Result(row, product, runs=[None], notes=[f"failed: {e}"]) for row in own_rows for product in products]
                continue
            results += _in_turn(own_rows, sessions, runs=runs, is_exact=is_exact)
    return results


def _in_turn(rows: Sequence[Row], sessions: Sequence[Session], *, runs: int, is_exact: bool) -> list[Result]:
    results = []
    for row in rows:
        row_results = [Result(row, session.product) for session in sessions]
        for run in range(runs if is_exact else min(runs, row.runs_max)):
            turns = list(zip(sessions, row_results, strict=True))
            for session, result in turns if run % 2 == 0 else reversed(turns):
                _run(session, result)
        results += row_results
    return results


def warm(session: Session, factor: float) -> None:
    """Runs every kind of core load once, so that a JIT has seen it: ten million small records at factor 1. Nothing at factor 0."""
    if factor <= 0:
        return
    _say(f"{session.product.title}: warming up")
    volumes = dataclasses.replace(session, scale=factor)
    if isinstance(volumes, ClusterSession):
        for load in CLUSTER_WARMUP:
            load(volumes)
        return
    with volumes.topic(produce_rows.PARTITIONS) as topic:
        volumes.librdkafka("produce", topic, volumes.scaled(WARMUP_RECORDS_100B), produce_rows.SMALL_SIZE)
        volumes.librdkafka(
            "consume", topic, volumes.scaled(WARMUP_RECORDS_100B), produce_rows.SMALL_SIZE, "--partitions", str(produce_rows.PARTITIONS)
        )
    for load in (produce_rows.lock_step, produce_rows.pipelined, produce_rows.librdkafka_1kb, produce_rows.librdkafka_lz4):
        load(volumes)


def _run(session: Session, result: Result) -> None:
    time.sleep(SETTLE_S)
    os.sync()  # a run must not pay for the previous run's unwritten bytes
    rehearse_page_cache(session.directory, result.row.writes_gb * session.scale)
    started = time.monotonic()
    try:
        outcome = result.row.measure(session)
    except (MeasurementError, OSError, RuntimeError) as e:
        outcome_text = f"failed: {e}"
        result.notes.append(outcome_text)
        result.runs.append(None)
    else:
        result.runs.append(outcome.values)
        for key, value in outcome.values.items():
            result.values.setdefault(key, []).append(value)
        result.notes += outcome.notes
        shown = (
            f"{figure.title} {outcome.values[figure.key]:.4g} {figure.unit}"
            for figure in result.row.figures
            if figure.key in outcome.values
        )
        outcome_text = ", ".join(shown)
    result.seconds += time.monotonic() - started
    _say(f"{result.row.name} · {session.product.title}: {outcome_text}"[:400])


def rehearse_page_cache(directory: Path, gigabytes: float) -> None:
    """Writes `gigabytes` to a file and removes it, so that a run which fills the page cache finds pages that exist.

    A virtual machine reports free pages to its host, and the next use of each costs a fault of the hypervisor: after a pause a plain pwrite
    takes two to three times the CPU. A file that is removed at once is not written to the disk.
    """
    path = directory / "rehearsal.bin"
    piece = bytes(REHEARSAL_PIECE_SIZE)
    with path.open("wb", buffering=0) as file:
        for _ in range(int(gigabytes * 1e9) // REHEARSAL_PIECE_SIZE):
            file.write(piece)
    path.unlink()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
