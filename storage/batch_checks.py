"""The worker's job that checks batches before their append: batches that are decompressed, walked, or compressed again.

This module serves both sides: it has the arguments, the computation, and the reading of the answer.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

from config.topic import LogConfig
from protocol.compression import Buffer
from protocol.errors import KafkaError, without_frames
from protocol.records import BatchHeader
from storage.validation import AppendOrigin, CheckedBatch, PreparedBatch, check_in_steps


class BatchChecks(NamedTuple):
    """The arguments of the job; `configs` has the settings of each batch."""

    configs: list[LogConfig]
    now_ms: int
    is_zstd_allowed: bool


class _Accepted(NamedTuple):
    """A CheckedBatch whose rebuilt batch is the next of the job's buffers."""

    header: BatchHeader
    max_timestamp: int
    is_rebuilt: bool


Outcomes = list[_Accepted | KafkaError]


def check_batches(checks: BatchChecks, batches: Sequence[memoryview]) -> Generator[None, None, tuple[Outcomes, Sequence[Buffer]]]:
    """The job. Returns each batch's outcome, and the rebuilt batches."""
    outcomes: Outcomes = []
    rebuilt: list[Buffer] = []
    for batch, config in zip(batches, checks.configs, strict=True):
        try:
            checked = yield from check_in_steps(
                batch, config, now_ms=checks.now_ms, origin=AppendOrigin.CLIENT, zstd_allowed=checks.is_zstd_allowed
            )
        except KafkaError as error:
            outcomes.append(without_frames(error))
            continue
        outcomes.append(_Accepted(checked.header, checked.max_timestamp, checked.rebuilt is not None))
        if checked.rebuilt is not None:
            rebuilt.append(checked.rebuilt)
    return outcomes, rebuilt


def prepared_batches(
    checks: BatchChecks, batches: Sequence[memoryview], outcomes: Outcomes, rebuilt: Sequence[memoryview]
) -> list[PreparedBatch]:
    """Returns the batches with their outcomes."""
    anew = iter(rebuilt)
    prepared = []
    for batch, config, outcome in zip(batches, checks.configs, outcomes, strict=True):
        if isinstance(outcome, _Accepted):
            checked = CheckedBatch(outcome.header, outcome.max_timestamp, next(anew) if outcome.is_rebuilt else None)
            prepared.append(PreparedBatch(batch, config, checked))
        else:
            prepared.append(PreparedBatch(batch, config, outcome))
    return prepared
