"""The interface of the metadata quorum for broker and controller: committed records in order, the leader, and proposals.

A listener gets everything from the beginning: a snapshot, or the log from offset 0, then each committed batch. This node's leadership is
reported only after everything that was committed before that epoch, so an active controller computes on the complete state. A proposal
names the epoch in which it was computed: a late one is refused, never appended.

Source: org.apache.kafka.raft.RaftClient and its Listener.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from broker.loop.deferred import Deferred
from broker.quorum.raft_log import OffsetAndEpoch


class Batch(NamedTuple):
    """A batch of the metadata log; `offset` is that of its last record. A control batch has no records."""

    base_offset: int
    offset: int
    epoch: int
    records: Sequence[Any]


class SnapshotReader(Protocol):
    """A snapshot that a listener loads in place of everything it has heard."""

    @property
    def snapshot(self) -> OffsetAndEpoch: ...

    def batches(self) -> Iterator[Sequence[Any]]:
        """The snapshot's records, batch by batch. StorageError when the file is damaged."""
        ...


class QuorumListener(Protocol):
    """Called on the loop, in the order of the log. An exception of a listener stops this node: its state would differ from that of the
    others."""

    def handle_commit(self, offset: int, epoch: int, records: Sequence[Any]) -> None:
        """One batch is committed; `offset` is its last record's. Control batches come too, with no records."""

    def handle_load_snapshot(self, reader: SnapshotReader) -> None:
        """Drop all state and begin with this snapshot."""

    def handle_leader_change(self, leader_id: int, epoch: int) -> None:
        """`leader_id` leads `epoch`; -1 if there is no known leader yet."""


class Quorum(Protocol):
    """This node's part of the metadata quorum."""

    @property
    def leader_id(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def committed_end_offset(self) -> int | None:
        """The committed end offset that the leader of this epoch has reported; None before its first report."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset of the next record, if this node leads."""
        ...

    def register(self, listener: QuorumListener) -> None:
        """Call `listener` with everything, from the beginning on."""

    def propose(self, epoch: int, records: Sequence[Any]) -> int:
        """Append `records` as one batch, to be committed together; returns the offset of the last. They are committed when a listener gets
        that offset.

        KafkaError NOT_CONTROLLER unless this node leads `epoch`, and then nothing was appended; REQUEST_TIMED_OUT when too many records
        wait; KAFKA_STORAGE_ERROR when the disk fails, after which this node leaves the quorum."""
        ...

    def resign(self, epoch: int) -> None:
        """Give up the leadership of `epoch`, if this node has it."""

    def handle_request(self, message: Any, version: int, listener_name: str) -> Deferred:
        """Returns a Deferred of the answer to a client's request about the quorum itself. `listener_name` is the listener by which it
        came."""
        ...

    # -- kraft.version (KIP-853) -----------------------------------------------------------------------------------

    @property
    def kraft_version(self) -> int: ...

    @property
    def voter_ids(self) -> Sequence[int]: ...

    def upgrade_kraft_version(self, epoch: int, level: int, *, is_validated_only: bool) -> None:
        """Write the voters to the log; they are committed before any later proposal. KafkaError INVALID_UPDATE_VERSION when a voter does
        not support it, and as `propose`."""
