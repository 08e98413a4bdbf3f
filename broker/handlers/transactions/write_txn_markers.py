"""WriteTxnMarkers (key 27): a transaction coordinator has the leaders of partitions write the ends of transactions. Serves v1–v2.

Behaviour:
- Each marker is judged by itself in each of its partitions. All markers of one partition are appended in the request's order; no partition
waits for another. The answer comes when the last one is replicated, or after request.timeout.ms.
- A marker in `__consumer_offsets` is written through the group coordinator: it is answered when the transaction's offsets count, or are
dropped. While the coordinator is loading or moves away the answer is NOT_LEADER_OR_FOLLOWER.
- UNKNOWN_TOPIC_OR_PARTITION for a partition without an online replica here; NOT_LEADER_OR_FOLLOWER; NOT_ENOUGH_REPLICAS;
REQUEST_TIMED_OUT; INVALID_PRODUCER_EPOCH; TRANSACTION_COORDINATOR_FENCED; KAFKA_STORAGE_ERROR.
- CLUSTER_AUTHORIZATION_FAILED for each without ALTER or CLUSTER_ACTION on the cluster.
- The answer has one entry for each producer id, as in Kafka. If a partition is named twice for it, the last result counts. A marker
without partitions is not answered.
- When the connection ends, what is appended stays.

Version notes: v2 the transaction version, by which the marker's epoch is judged (KIP-1228); v1 has 0.

Source: KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from broker.handlers.services import Handler, Services
from broker.loop.deferred import Deferred
from broker.loop.turns import Work, at_once_or_in_turns
from broker.network.context import RequestContext
from broker.replication.replica_manager import ReplicaManager
from broker.transactions.local_markers import MARKERS_AT_ONCE, LocalMarkers, OnWritten
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from storage.markers import TransactionMarker

Results = dict[int, dict[str, dict[int, ErrorCode]]]
"""By producer id, topic and partition, each in the order in which the request names it first."""


def build(services: Services) -> Handler:
    replica_manager = services.replica_manager
    local_markers = LocalMarkers(replica_manager.produce_path, services.group_coordinator, timeout_ms=services.config.request_timeout_ms)

    def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> Any:
        return at_once_or_in_turns(_written(replica_manager, local_markers, request))

    return handle


def _written(replica_manager: ReplicaManager, local_markers: LocalMarkers, request: WriteTxnMarkersRequest) -> Work:
    results: Results = {}
    by_partition: dict[tuple[str, int], list[TransactionMarker]] = {}
    for marker in request.markers:
        decided = TransactionMarker(
            marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result, marker.transaction_version
        )
        for topic in marker.topics:
            for index in topic.partition_indexes:
                results.setdefault(marker.producer_id, {}).setdefault(topic.name, {})[index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                by_partition.setdefault((topic.name, index), []).append(decided)
                yield
    answer = _Answer(results)
    for (name, index), markers in by_partition.items():
        if _is_online(replica_manager, name, index):
            for start in range(0, len(markers), MARKERS_AT_ONCE):
                run = markers[start : start + MARKERS_AT_ONCE]
                local_markers.write(name, index, run, answer.expect(name, index, run))
                yield
        yield
    return answer.wait() if answer.is_waiting else (yield from _response(results))


class _Answer:
    """Notes the outcomes of the appends, and is complete when the last one is there."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._expected_count = 0
        self._waiting: Deferred | None = None

    def expect(self, topic: str, index: int, markers: Sequence[TransactionMarker]) -> OnWritten:
        """What to call with the outcomes of these markers."""
        self._expected_count += 1
        return partial(self._note, topic, index, markers)

    def _note(self, topic: str, index: int, markers: Sequence[TransactionMarker], errors: list[ErrorCode]) -> None:
        for marker, error in zip(markers, errors, strict=True):
            self._results[marker.producer_id][topic][index] = error
        self._expected_count -= 1
        if self._waiting is not None and not self._expected_count:
            self._waiting.complete(at_once_or_in_turns(_response(self._results)))

    @property
    def is_waiting(self) -> bool:
        return self._expected_count > 0

    def wait(self) -> Deferred:
        """A Deferred of the response or its Work. Nothing more is expected. The connection's next request need not wait for it."""
        self._waiting = Deferred()
        return self._waiting


def _is_online(replica_manager: ReplicaManager, topic: str, index: int) -> bool:
    try:
        replica_manager.get_partition(topic, index)
    except KafkaError:
        return False
    return True


def _response(results: Results) -> Work:
    response = WriteTxnMarkersResponse(markers=[])
    for producer_id, topics in results.items():
        answered = WritableTxnMarkerResult(producer_id=producer_id, topics=[])
        response.markers.append(answered)
        for name, errors in topics.items():
            outcome = WritableTxnMarkerTopicResult(name=name, partitions=[])
            answered.topics.append(outcome)
            for index, error in errors.items():
                outcome.partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=error))
                yield
    return response


def error_response(request: WriteTxnMarkersRequest, error: KafkaError) -> Any:
    return at_once_or_in_turns(_failed(request, error.code))


def _failed(request: WriteTxnMarkersRequest, error: ErrorCode) -> Work:
    results: Results = {}
    for marker in request.markers:
        topics = results[marker.producer_id] = {}
        for topic in marker.topics:
            topics.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes, error))
            yield
    return (yield from _response(results))
