"""WriteTxnMarkers (key 27): a transaction coordinator has partitions' leaders write the ends of transactions.

Version notes: 1 flexible, the first that Kafka 4 knows; 2 the marker's transaction version (KIP-1228).
"""

from __future__ import annotations

from ..schema import Array, Bool, Int8, Int16, Int32, Int64, String, api, message, since, struct


@struct
class WritableTxnMarkerTopic:
    name: String = ""
    partition_indexes: Array[Int32] = []


@struct
class WritableTxnMarker:
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: Array[WritableTxnMarkerTopic] = []
    coordinator_epoch: Int32 = 0
    transaction_version: Int8 = since(2, default=0, ignorable=True)


@api(key=27, versions=(1, 2), flexible=1)
class WriteTxnMarkersRequest:
    """Carries the markers of many transactions for one broker."""

    markers: Array[WritableTxnMarker] = []


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32 = 0
    error_code: Int16 = 0


@struct
class WritableTxnMarkerTopicResult:
    name: String = ""
    partitions: Array[WritableTxnMarkerPartitionResult] = []


@struct
class WritableTxnMarkerResult:
    producer_id: Int64 = 0
    topics: Array[WritableTxnMarkerTopicResult] = []


@message(versions=(1, 2), flexible=1)
class WriteTxnMarkersResponse:
    """Tells for each marker and partition whether it is written."""

    markers: Array[WritableTxnMarkerResult] = []
