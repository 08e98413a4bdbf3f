"""Safeguards that can be switched off, one at a time. Each must yield a seed in which a promise is broken: that proves the harness.

An ablation replaces one function of the broker, for as long as its context lasts. `KEPT_SEEDS` are seeds that failed with it once; when
one passes because code or harness have changed, `find_seed` looks for another, which then takes its place here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import storage.log_opener
import storage.recovery
from broker.coordination.coordinator_log import ReplicatedCoordinatorLog
from protocol.errors import ErrorCode
from protocol.records import read_header
from storage.index import CorruptIndexError
from storage.segment import LogSegment
from tests.simulation.ablation_set import AblationSet
from tests.simulation.group_ablations import GROUP_ABLATIONS, GROUP_BROKEN_BY
from tests.simulation.loop import SimulatedLoop, current_life
from tests.simulation.world import World

ANSWER_LEAD_S = 0.02  # by which an answer is ahead of what it promises


@contextmanager
def forget_producers_at_a_restart() -> Iterator[None]:
    """Skip the producer-state check after a restart: nobody's sequence numbers are known then, so that what is sent again is new."""
    load = storage.log_opener.load_log

    def load_without_producers(directory: Any, config: Any, producers: Any, *arguments: Any, **named: Any) -> Any:
        loaded = load(directory, config, producers, *arguments, **named)
        producers._producers.clear()
        return loaded

    with patch("storage.log_opener.load_log", load_without_producers):
        yield


@contextmanager
def acknowledge_before_the_fsync() -> Iterator[None]:
    """With flush.messages=1 the answer waits for the append, as without it; the fsync comes all the same."""
    with patch("broker.replication.partition.FLUSH_EVERY_MESSAGE", -1):
        yield


@contextmanager
def trust_the_index_in_recovery() -> Iterator[None]:
    """Scan a segment from its last index entry on: what the index refers to counts as whole."""
    scan, valid_batches = storage.recovery._scan_segment, storage.recovery.valid_batches
    trusted: dict[LogSegment, int] = {}

    def scan_segment(segment: LogSegment, *arguments: Any) -> Any:
        trusted[segment] = _last_indexed_position(segment)
        return scan(segment, *arguments)

    def batches_behind_the_index(
        segment: LogSegment, previous_last_offset: int, position: int = 0, previous_epoch: int = -1
    ) -> Iterator[Any]:
        end = trusted.get(segment, 0)
        while position < end:
            header = read_header(segment.read_batch(position, 61))
            chunk = memoryview(segment.read_batch(position, header.batch_length + 12))
            yield position, header, chunk, 0
            position += header.batch_length + 12
            previous_last_offset = header.base_offset + header.last_offset_delta
        yield from valid_batches(segment, previous_last_offset, position, previous_epoch)

    with patch("storage.recovery._scan_segment", scan_segment), patch("storage.recovery.valid_batches", batches_behind_the_index):
        yield


def _last_indexed_position(segment: LogSegment) -> int:
    """Where the last batch that the index knows begins, if the file has one there and everything before it has a header."""
    try:
        segment.indexes.offset_index.load(is_active=True)
    except CorruptIndexError:
        return 0
    entries = segment.indexes.offset_index._entries or b""
    size = segment.indexes.offset_index.entry.size
    wanted = int.from_bytes(entries[-size:][4:8], "big") if len(entries) >= size else 0
    position = 0
    while position < wanted and position + 61 <= segment.size_bytes:
        length = int.from_bytes(segment.read_batch(position, 12)[8:12], "big") + 12
        if not 61 <= length <= segment.size_bytes - position:
            break
        position += length
    return position if position <= wanted else 0


@contextmanager
def leave_a_torn_tail() -> Iterator[None]:
    """Recovery finds the tear and does not cut the file there: the next batch is appended behind it. Not of the broker's own logs, with
    which it would not even start."""
    finish = LogSegment.finish_rebuild

    def finish_without_cutting(self: LogSegment, end_position: int) -> None:
        finish(self, end_position if self.log_path.parent.name.startswith("__") else self.size_bytes)

    with patch.object(LogSegment, "finish_rebuild", finish_without_cutting):
        yield


@contextmanager
def answer_group_commits_early() -> Iterator[None]:
    """The coordinator's records count as committed some time before they are appended."""
    append = ReplicatedCoordinatorLog.append

    def append_later(self: Any, partition: int, records: Any, on_committed: Callable[[ErrorCode], None], producer: Any = None) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.call_in_later(current_life(), ANSWER_LEAD_S, append, self, partition, records, lambda error: None, producer)
        on_committed(ErrorCode.NONE)

    with patch.object(ReplicatedCoordinatorLog, "append", append_later):
        yield


@contextmanager
def drop_tombstones_at_once() -> Iterator[None]:
    """Without delete.retention.ms: whoever has read the old value never hears of the deletion."""
    with patch("storage.compaction.batch_filter._delete_horizon", lambda header: 0):
        yield


@contextmanager
def throw_half_a_swap_away() -> Iterator[None]:
    """A start takes .swap files for leftovers, though the segments are gone in whose place they were put."""

    def delete(_: Any, swaps: list[Any], disk: Any) -> None:
        for path in swaps:
            disk.unlink(path)

    with patch("storage.swap._complete", delete):
        yield


Ablation = Callable[[], AbstractContextManager[None]]

ABLATIONS: dict[str, Ablation] = {
    each.__name__: each
    for each in (
        forget_producers_at_a_restart,
        acknowledge_before_the_fsync,
        trust_the_index_in_recovery,
        leave_a_torn_tail,
        answer_group_commits_early,
        drop_tombstones_at_once,
        throw_half_a_swap_away,
    )
} | GROUP_ABLATIONS

BROKEN_BY: dict[str, frozenset[str]] = {
    "forget_producers_at_a_restart": frozenset({"duplicate"}),
    "acknowledge_before_the_fsync": frozenset({"unseen", "lost-write", "inconsistent-offsets"}),
    "trust_the_index_in_recovery": frozenset({"corrupt", "broker-failure", "unreadable", "unexpected-error", "lost-in-the-middle"}),
    "leave_a_torn_tail": frozenset({"corrupt", "broker-failure", "unreadable", "unexpected-error", "stuck"}),
    "answer_group_commits_early": frozenset({"commit-regression"}),
    "drop_tombstones_at_once": frozenset({"compacted lost-key", "compacted consumer-missed-a-key"}),
    "throw_half_a_swap_away": frozenset({"compacted lost-key"}),
    **GROUP_BROKEN_BY,
}
"""What each ablation breaks: a seed counts when it finds one of these."""

KEPT_SEEDS = {
    "forget_producers_at_a_restart": 3,
    "acknowledge_before_the_fsync": 7,
    "trust_the_index_in_recovery": 590,
    "leave_a_torn_tail": 3,
    "answer_group_commits_early": 13,
    "drop_tombstones_at_once": 10,
    "throw_half_a_swap_away": 129,
    "give_what_others_have_yet_to_give_up": 0,
    "load_no_tombstones": 5,
    "convert_without_assignments": 27,
}

ABLATION_SET = AblationSet(ABLATIONS, BROKEN_BY, World, {})
