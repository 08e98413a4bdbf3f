"""What the broker and the controller see of the metadata quorum: committed records in order, who leads, and a way to propose.

`Quorum` is the seam. A listener hears everything from the beginning: a snapshot, or the log from offset 0, then each committed batch. It
is told that this node leads only once it has heard everything that was committed before that epoch, so a controller that becomes active
then computes on the whole state. A proposal names the epoch that it was computed in: one that is late is refused, never appended.

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
    """Called on the loop, in the order of the log. What a listener raises stops this node: it would differ from the others."""

    def handle_commit(self, offset: int, epoch: int, records: Sequence[Any]) -> None:
        """One batch is committed; `offset` is its last record's. Control batches come too, with no records."""

    def handle_load_snapshot(self, reader: SnapshotReader) -> None:
        """Forget everything and begin with this snapshot."""

    def handle_leader_change(self, leader_id: int, epoch: int) -> None:
        """`leader_id` leads `epoch`; -1 when that is not known yet."""


class Quorum(Protocol):
    """The metadata quorum, as this node takes part in it."""

    @property
    def leader_id(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def committed_end_offset(self) -> int | None:
        """How far the quorum has committed, as the leader of this epoch says; None before it has said so."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets, where this node leads."""
        ...

    def register(self, listener: QuorumListener) -> None:
        """Tell `listener` everything, from the beginning on."""

    def propose(self, epoch: int, records: Sequence[Any]) -> int:
        """Append `records` as one batch, to be committed together; returns the offset of the last. They are committed once a listener
        hears of that offset.

        KafkaError NOT_CONTROLLER unless this node leads `epoch`, and then nothing was appended; REQUEST_TIMED_OUT when too much waits;
        KAFKA_STORAGE_ERROR when the disk fails, which is the end of this node's part in the quorum."""
        ...

    def resign(self, epoch: int) -> None:
        """Give up the leadership of `epoch`, where this node has it."""

    def handle_request(self, message: Any, version: int, listener_name: str) -> Deferred:
        """A Deferred of the answer to a client's request that is about the quorum itself, given its version and the listener it came by."""
        ...

    # -- kraft.version (KIP-853) -----------------------------------------------------------------------------------

    @property
    def kraft_version(self) -> int: ...

    @property
    def voter_ids(self) -> Sequence[int]: ...

    def upgrade_kraft_version(self, epoch: int, level: int, *, is_validated_only: bool) -> None:
        """Move the voters into the log, which is committed before any later proposal is. KafkaError INVALID_UPDATE_VERSION when a voter
        does not support it, and as `propose`."""
