"""A RaftLog in memory, with what a power cut leaves: everything that was synchronised, and perhaps a little more."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from broker.quorum.raft_log import ControlRecord, OffsetAndEpoch
from protocol.records import ControlRecordType

KEPT = (ControlRecordType.KRAFT_VERSION, ControlRecordType.KRAFT_VOTERS)


@dataclass(frozen=True, slots=True)
class Entry:
    """One record: `control` is its type, None for a record of the cluster."""

    epoch: int
    value: Any
    control: ControlRecordType | None = None


class MemoryRaftLog:
    """Entries from `start_offset` on, behind the newest snapshot. Satisfies RaftLog."""

    def __init__(self) -> None:
        self.start_offset = 0
        self.entries: list[Entry] = []
        self.durable_end_offset = 0
        self.high_watermark = 0
        self.cuts_count = 0
        self.read_max_bytes = 0  # of the last read
        self.snapshots: dict[OffsetAndEpoch, list[Entry]] = {}
        self.partial: dict[OffsetAndEpoch, list[Entry]] = {}

    # -- RaftLog ---------------------------------------------------------------------------------------------------

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    @property
    def last_epoch(self) -> int:
        if self.entries:
            return self.entries[-1].epoch
        return self.latest_snapshot.epoch if self.latest_snapshot is not None else 0

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return max(self.snapshots, default=None)

    @property
    def earliest_snapshot(self) -> OffsetAndEpoch | None:
        return min(self.snapshots, default=None)

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        base = self.latest_snapshot_before_start()
        found = OffsetAndEpoch(self.start_offset, base.epoch if base is not None else 0)
        for offset, entry in enumerate(self.entries, start=self.start_offset):
            if entry.epoch > epoch:
                break
            found = OffsetAndEpoch(offset + 1, entry.epoch)
        return found

    def latest_snapshot_before_start(self) -> OffsetAndEpoch | None:
        return max((snapshot for snapshot in self.snapshots if snapshot.offset <= self.start_offset), default=None)

    def begin_epoch(self, epoch: int) -> None:
        assert epoch >= self.last_epoch

    def append_records(self, records: Sequence[Any], *, epoch: int, now_ms: int) -> int:
        self.entries += [Entry(epoch, record) for record in records]
        return self.end_offset - 1

    def append_control_records(self, records: Sequence[tuple[ControlRecordType, Any]], *, epoch: int, now_ms: int) -> int:
        self.entries += [Entry(epoch, value, control) for control, value in records]
        return self.end_offset - 1

    def append_fetched(self, records: Any, *, leader_epoch: int, now_ms: int) -> list[ControlRecord]:
        first_offset = self.end_offset
        assert records.start_offset == first_offset
        assert all(entry.epoch <= leader_epoch for entry in records.entries)
        self.entries += records.entries
        return control_records(records.entries, first_offset)

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        assert offset >= self.high_watermark, "what is committed is never cut"
        del self.entries[max(offset - self.start_offset, 0) :]
        self.durable_end_offset = min(self.durable_end_offset, self.end_offset)
        self.cuts_count += 1

    def read(self, start_offset: int, *, max_bytes: int) -> Any:
        self.read_max_bytes = max_bytes
        return Slice(start_offset, self.entries[start_offset - self.start_offset :][:50])

    def set_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, offset)

    def read_snapshot(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[bytes, int] | None:
        """A "byte" is an entry here; pieces have three of them."""
        entries = self.snapshots.get(snapshot)
        if entries is None:
            return None
        return entries[position : position + 3], len(entries)  # type: ignore[return-value]

    def begin_snapshot(self, snapshot: OffsetAndEpoch) -> int | None:
        if snapshot in self.snapshots:
            return None
        return len(self.partial.setdefault(snapshot, []))

    def append_snapshot(self, snapshot: OffsetAndEpoch, position: int, content: Any) -> None:
        assert position == len(self.partial[snapshot])
        self.partial[snapshot] += content

    def finish_snapshot(self, snapshot: OffsetAndEpoch, *, now_ms: int) -> list[ControlRecord]:
        self.snapshots[snapshot] = self.partial.pop(snapshot)
        self.start_offset, self.entries = snapshot.offset, []
        self.durable_end_offset = snapshot.offset
        self.high_watermark = snapshot.offset
        self.snapshots = {snapshot: self.snapshots[snapshot]}
        return self.restore()

    # -- the test's side -------------------------------------------------------------------------------------------

    def restore(self) -> list[ControlRecord]:
        """The control records that a start finds, in order."""
        base = self.latest_snapshot_before_start()
        inside = [] if base is None else control_records(self.snapshots[base], base.offset - len(self.snapshots[base]))
        newest = {record.type: record._replace(offset=self.start_offset - 1) for record in inside}
        return [newest[kind] for kind in KEPT if kind in newest] + control_records(self.entries, self.start_offset)

    def take_snapshot(self) -> None:
        """A snapshot of all that is committed, with the log before it deleted. Here it simply holds all the records."""
        offset = self.high_watermark
        if offset <= self.start_offset:
            return
        base = self.latest_snapshot_before_start()
        before = [] if base is None else self.snapshots[base]
        kept = self.entries[: offset - self.start_offset]
        self.snapshots = {OffsetAndEpoch(offset, kept[-1].epoch): before + kept}
        self.entries = self.entries[offset - self.start_offset :]
        self.start_offset = offset
        self.durable_end_offset = max(self.durable_end_offset, offset)

    def content(self) -> list[Entry]:
        """Every record from offset 0 on."""
        base = self.latest_snapshot_before_start()
        return ([] if base is None else self.snapshots[base]) + self.entries

    def lose_power(self, draw: random.Random) -> None:
        keep = draw.randint(self.durable_end_offset, self.end_offset) if draw.random() < 0.5 else self.durable_end_offset
        del self.entries[keep - self.start_offset :]
        self.durable_end_offset = self.end_offset
        self.partial.clear()


class Slice:
    """Records as a fetch carries them."""

    def __init__(self, start_offset: int, entries: list[Entry]) -> None:
        self.start_offset = start_offset
        self.entries = entries

    def __len__(self) -> int:
        return len(self.entries)


def control_records(entries: Sequence[Entry], first_offset: int) -> list[ControlRecord]:
    return [
        ControlRecord(offset, entry.control, entry.value)
        for offset, entry in enumerate(entries, start=first_offset)
        if entry.control in KEPT and entry.control is not None
    ]
