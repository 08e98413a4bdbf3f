"""LocalMarkers: writes the ends of transactions to partitions that this broker leads, for WriteTxnMarkers and for its own coordinator.

A marker in `__consumer_offsets` goes through the group coordinator, in the order of its writes: the transaction's offsets count, or are
dropped, before the marker counts as written. All others go through the ProducePath.

Source: KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.metadata.image import GROUP_METADATA_TOPIC
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.groups.coordinator import GroupCoordinator
    from broker.replication.produce_path import ProducePath
    from storage.markers import TransactionMarker

MARKERS_AT_ONCE = 100
"""To one partition by one call: 1 to 3 ms of work."""

OnWritten = Callable[[list[ErrorCode]], None]


class LocalMarkers:
    """`timeout_ms` is how long a marker may wait for its followers (request.timeout.ms)."""

    def __init__(self, produce_path: ProducePath, group_coordinator: GroupCoordinator, *, timeout_ms: int) -> None:
        self._produce_path = produce_path
        self._group_coordinator = group_coordinator
        self._timeout_ms = timeout_ms

    def write(self, topic: str, partition: int, markers: Sequence[TransactionMarker], on_written: OnWritten) -> None:
        """Write MARKERS_AT_ONCE markers at most, in their order. `on_written` gets an error code for each: NONE when it is written and
        replicated. It may be called before this returns."""
        assert len(markers) <= MARKERS_AT_ONCE
        if topic == GROUP_METADATA_TOPIC:
            self._complete(partition, markers, on_written)
        else:
            self._produce_path.append_markers(topic, partition, markers, timeout_ms=self._timeout_ms, on_done=on_written)

    def _complete(self, partition: int, markers: Sequence[TransactionMarker], on_written: OnWritten) -> None:
        outcomes: dict[int, ErrorCode] = {}

        def end(index: int, error: ErrorCode) -> None:
            outcomes[index] = error
            if len(outcomes) == len(markers):
                on_written([outcomes[each] for each in range(len(markers))])

        for index, marker in enumerate(markers):
            self._group_coordinator.complete_transaction(partition, marker).when_done(partial(end, index))
