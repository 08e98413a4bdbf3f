"""The log interface of the raft core. All calls are synchronous; the driver makes the log durable, off the loop.

Source: org.apache.kafka.raft.ReplicatedLog.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from protocol.records import ControlRecordType

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = (1).to_bytes(16, "big")
"""The metadata topic's fixed id (Topic.CLUSTER_METADATA_TOPIC_ID)."""
PARTITION = 0


class OffsetAndEpoch(NamedTuple):
    """The end of a log or a snapshot: the offset (exclusive), and the epoch of the last record before it."""

    offset: int
    epoch: int


class ControlRecord(NamedTuple):
    """A control record of the log or of a snapshot: KRAFT_VERSION or KRAFT_VOTERS, decoded. `offset` is -1 in a snapshot."""

    offset: int
    type: ControlRecordType
    value: Any


class Position(Enum):
    """The relation of a follower's (fetch offset, last fetched epoch) to the leader's log."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


class PositionCheck(NamedTuple):
    """`end` is where the follower's epoch ends in this log (DIVERGING), or the snapshot to load (SNAPSHOT)."""

    position: Position
    end: OffsetAndEpoch


class RaftLog(Protocol):
    """One replica of the metadata log, and its snapshots."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def durable_end_offset(self) -> int:
        """The end of the records that survive a power cut."""
        ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot that the log begins with; 0 for an empty log."""
        ...

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None: ...

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None: ...

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Returns where the newest epoch at or before `epoch` ends."""
        ...

    def begin_epoch(self, epoch: int) -> None:
        """Record that this node leads `epoch` from the log's end on."""
        ...

    def append_records(self, records: Sequence[Any], *, epoch: int, now_ms: int) -> int:
        """Append metadata records as one batch; returns the offset of the last. StorageError: nothing was appended."""
        ...

    def append_control_records(self, records: Sequence[tuple[ControlRecordType, Any]], *, epoch: int, now_ms: int) -> int:
        """Append control records as one batch; returns the offset of the last."""
        ...

    def append_fetched(self, records: Any, *, leader_epoch: int, now_ms: int) -> list[ControlRecord]:
        """Append whole batches that a leader sent, up to the first that is damaged or of a higher epoch. Returns the voters and
        kraft versions among them."""
        ...

    def truncate_to(self, offset: int, *, now_ms: int) -> None: ...

    def read(self, start_offset: int, *, max_bytes: int) -> Any:
        """Batches from `start_offset` to the log's end, at least one whole; anything with `len()`."""
        ...

    def set_high_watermark(self, offset: int) -> None: ...

    def read_snapshot(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[bytes, int] | None:
        """A piece of a snapshot and the snapshot's size; None when there is no such snapshot."""
        ...

    def begin_snapshot(self, snapshot: OffsetAndEpoch) -> int | None:
        """Prepare a snapshot that will be fetched. Returns the number of bytes already there; None if it is stored completely."""
        ...

    def append_snapshot(self, snapshot: OffsetAndEpoch, position: int, content: Any) -> None:
        """`content` is what the leader sent: bytes, valid during the call."""
        ...

    def finish_snapshot(self, snapshot: OffsetAndEpoch, *, now_ms: int) -> list[ControlRecord]:
        """Called when the snapshot is complete: restart the log at its end. Returns the voters and kraft version in it."""
        ...


def check_position(log: RaftLog, fetch_offset: int, last_fetched_epoch: int) -> PositionCheck:
    """Returns a leader's verdict on a follower's position (ReplicatedLog.validateOffsetAndEpoch)."""
    if log.start_offset == 0 and fetch_offset == 0:
        return PositionCheck(Position.VALID, OffsetAndEpoch(0, 0))
    earliest = log.earliest_snapshot
    if earliest is not None and (
        fetch_offset < log.start_offset
        or (fetch_offset == log.start_offset and last_fetched_epoch != earliest.epoch)
        or last_fetched_epoch < earliest.epoch
    ):
        latest = log.latest_snapshot
        assert latest is not None, "there is an earliest snapshot"
        return PositionCheck(Position.SNAPSHOT, latest)
    end = log.end_of_epoch(last_fetched_epoch)
    if end.epoch != last_fetched_epoch or end.offset < fetch_offset:
        return PositionCheck(Position.DIVERGING, end)
    return PositionCheck(Position.VALID, OffsetAndEpoch(fetch_offset, last_fetched_epoch))


def truncation_offset(log: RaftLog, diverging: OffsetAndEpoch) -> int:
    """Returns where a follower truncates its log. The leader's epoch `diverging.epoch` ends at `diverging.offset`."""
    if diverging.epoch == 0:
        return min(diverging.offset, log.end_offset)
    own = log.end_of_epoch(diverging.epoch)
    return min(own.offset, diverging.offset) if own.epoch == diverging.epoch else own.offset
