"""WriteTxnMarkers as MarkerChannels sends it, and what its response says of each marker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from broker.transactions.marker_queues import PartitionMarker, TransactionEnd


def make_request(markers: Iterable[PartitionMarker]) -> WriteTxnMarkersRequest:
    """One entry for each transaction. No two of them have the same producer id."""
    by_end: dict[TransactionEnd, dict[str, list[int]]] = {}
    for marker in markers:
        by_end.setdefault(marker.end, {}).setdefault(marker.topic, []).append(marker.index)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=end.marker.producer_id,
                producer_epoch=end.marker.producer_epoch,
                transaction_result=end.marker.is_commit,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()],
                coordinator_epoch=end.marker.coordinator_epoch,
                transaction_version=end.marker.transaction_version,
            )
            for end, topics in by_end.items()
        ]
    )


def read_outcomes(markers: Sequence[PartitionMarker], response: WriteTxnMarkersResponse | None) -> list[int | None]:
    """The error of each marker, None for those that the response does not tell of."""
    if response is None:
        return [None] * len(markers)
    errors = {
        (answered.producer_id, topic.name, partition.partition_index): partition.error_code
        for answered in response.markers
        for topic in answered.topics
        for partition in topic.partitions
    }
    return [errors.get((each.end.marker.producer_id, each.topic, each.index)) for each in markers]
