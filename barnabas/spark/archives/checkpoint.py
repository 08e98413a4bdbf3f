"""Reads Spark's checkpoint of a streaming query: which batches were planned and committed, over which topics.

It writes nothing.

    metadata        {"id": …}: the query's identity, made at its first start
    sources/0/0     the positions at which the first batch begins
    offsets/<id>    the plan of a batch: a version, its metadata, the positions at which it ends; written before the batch runs
    commits/<id>    written after it
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Set

from .layout import NO_BATCH
from .local_files import Files

PLAN_DIGITS = 12


class Checkpoint:
    """The folder of one query. A checkpoint that does not exist yet has no topics, no batches and no identity."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self.folder = folder.rstrip("/")

    def query_id(self) -> str | None:
        path = f"{self.folder}/metadata"
        return str(json.loads(self._files.read_text(path))["id"]) if self._files.exists(path) else None

    def last_committed(self) -> int:
        """The newest batch that was published and noted, or NO_BATCH."""
        return self._last("commits")

    def last_planned(self) -> int:
        return self._last("offsets")

    def topics_at(self, batch_id: int) -> Set[str]:
        """The topics with a position at the end of a planned batch. NO_BATCH stands for the beginning of the first one."""
        path = self.plan_path(batch_id) if batch_id > NO_BATCH else f"{self.folder}/sources/0/0"
        if not self._files.exists(path):
            return frozenset()
        # A zero byte precedes the initial positions, for versions of Spark that are long gone.
        positions = self._files.read_text(path).lstrip("\0").splitlines()[-1]
        return json.loads(positions).keys() if positions.startswith("{") else frozenset()

    def begins(self) -> Mapping[str, Mapping[int, int]]:
        """Where the first batch began, by topic and partition. A topic that was added later began at its first offset."""
        path = f"{self.folder}/sources/0/0"
        # A zero byte precedes the positions, for versions of Spark that are long gone.
        return _positions_of(self._files.read_text(path).lstrip("\0")) if self._files.exists(path) else {}

    def ends_at(self, batch_id: int) -> Mapping[str, Mapping[int, int]]:
        """Where a planned batch ends: by topic and partition the offset of the next record. Empty if its plan is not there any more."""
        path = self.plan_path(batch_id)
        return _positions_of(self._files.read_text(path)) if self._files.exists(path) else {}

    def planned_ms(self, batch_id: int) -> int | None:
        """When the batch was planned, in milliseconds since 1970; None if its plan is not there any more."""
        path = self.plan_path(batch_id)
        if not self._files.exists(path):
            return None
        told = json.loads(self._files.read_text(path).splitlines()[1])
        return int(told["batchTimestampMs"])

    def plan_digest(self, batch_id: int) -> str:
        """A digest of the positions at which the previous batch ended and this one ends. Another plan has another one."""
        plans = [self.plan_path(number) for number in (batch_id - 1, batch_id) if number > NO_BATCH]
        # The first lines hold the log's version and the time of planning; the positions of the sources follow.
        positions = [line for plan in plans for line in self._files.read_text(plan).splitlines()[2:]]
        return hashlib.sha256("\n".join(positions).encode()).hexdigest()[:PLAN_DIGITS]

    def plan_path(self, batch_id: int) -> str:
        return f"{self.folder}/offsets/{batch_id}"

    def _last(self, log: str) -> int:
        return max((int(name) for name in self._files.names(f"{self.folder}/{log}") if name.isdecimal()), default=NO_BATCH)


def _positions_of(text: str) -> Mapping[str, Mapping[int, int]]:
    """Those of the last line of a plan; empty for a plan without any."""
    positions = text.splitlines()[-1]
    found = json.loads(positions) if positions.startswith("{") else {}
    return {topic: {int(number): int(offset) for number, offset in offsets.items()} for topic, offsets in found.items()}
