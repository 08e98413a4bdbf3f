"""ListOffsets: the offset at either end of a partition, of its largest timestamp, or the first one from a timestamp on.

Serves v1–v11.

Behaviour:
- -1 is the end: the high watermark, the last stable offset for READ_COMMITTED, the log end for replicas. -2 is the start.
- A timestamp finds the first record at or after it that the client may read; none is (-1, -1) without an error.
- Right after an election, until the high watermark reaches the start of the leader's epoch, the answer is OFFSET_NOT_AVAILABLE
(LEADER_NOT_AVAILABLE before v5): an end offset that a client knows might seem to go back.
- Many partitions are looked up in turns; other requests run between them.
- TOPIC_AUTHORIZATION_FAILED for the partitions of a topic without DESCRIBE on it.
- A topic is answered once, however often it is named, and not at all without partitions. A partition named twice gets INVALID_REQUEST,
once. An isolation level that does not exist is UNKNOWN_SERVER_ERROR for every partition, as in Kafka.
- A special timestamp that the version does not know: UNSUPPORTED_VERSION.

Version notes: v2 isolation level. v4 leader epochs. v7 -3, the record with the largest timestamp. v8 -4, the start of the local log:
without tiering the same as -2. v9 -5, the end of the tiered log: -1 without tiering. v11 -6, the first offset still to be tiered: -1 too.

Not done: tiered storage.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.handlers.services import Handler, Services
from broker.loop.cold_reads import read_in_turns
from broker.loop.turns import Work, at_once_or_in_turns
from broker.network.context import RequestContext
from broker.observability.limited_log import LimitedLog
from broker.replication.fetch.fetch_data import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    NO_EPOCH,
    UNKNOWN_OFFSET,
    FetchIsolation,
)
from broker.security.authorizer.access import Access
from broker.security.authorizer.acl_codes import AclOperation, ResourceType
from protocol.errors import DecodeError, ErrorCode, KafkaError
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from storage.log import Log

log = logging.getLogger("barnabas.handlers")

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6
SPECIAL_TIMESTAMP_VERSIONS_MIN = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
IN_MEMORY = frozenset((LATEST_TIMESTAMP, EARLIEST_TIMESTAMP))
"""These are answered without a read from a file. Consumers ask for both ends, so nearly every request has one of them."""
PARTITIONS_AT_ONCE = 100
"""More go in turns: a search by timestamp takes up to 50 µs."""
NO_TIMESTAMP = -1
READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
LEADER_EPOCH_VERSION_MIN = 4
OFFSET_NOT_AVAILABLE_VERSION_MIN = 5


def build(services: Services) -> Handler:
    return ListOffsetsHandler(services).handle


class ListOffsetsHandler:
    """Stateless between requests."""

    def __init__(self, services: Services) -> None:
        self._replica_manager = services.replica_manager
        self._run_blocking = services.run_blocking
        self._log = LimitedLog(log, services.clock)

    def handle(self, context: RequestContext, request: ListOffsetsRequest) -> Any:
        return at_once_or_in_turns(self._answers(context.api_version, context.access, request), PARTITIONS_AT_ONCE)

    def _answers(self, version: int, access: Access, request: ListOffsetsRequest) -> Work:
        """Looks the partitions up, in turns. Where that would wait for the disk, a thread reads the missing part into memory."""
        answers: dict[str, ListOffsetsTopicResponse] = {}
        answered: dict[tuple[str, int], ListOffsetsPartitionResponse] = {}
        refusals: dict[str, ErrorCode] = {}
        if request.isolation_level not in ISOLATION_LEVELS:
            refusals = {topic.name: ErrorCode.UNKNOWN_SERVER_ERROR for topic in request.topics}
        for topic in request.topics:
            name = topic.name
            if not topic.partitions:
                continue
            answer = answers.get(name)
            if answer is None:
                answer = answers[name] = ListOffsetsTopicResponse(name=name, partitions=[])
                if not access.is_open and not access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
                    refusals[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            refusal = refusals.get(name)
            for asked in topic.partitions:
                key = (name, asked.partition_index)
                if key in answered:
                    _refuse(answered[key], refusal or ErrorCode.INVALID_REQUEST)
                else:
                    if refusal:
                        found = ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=refusal)
                    elif asked.timestamp in IN_MEMORY:
                        found = self._answer_one(request, name, asked, version)
                    else:
                        look_up = partial(self._answer_one, request, name, asked, version)
                        found = yield from read_in_turns(look_up, self._run_blocking)
                    answered[key] = found
                    answer.partitions.append(found)
                yield
        return ListOffsetsResponse(topics=list(answers.values()))

    def _answer_one(
        self, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition, version: int
    ) -> ListOffsetsPartitionResponse:
        try:
            return self._answer(request, topic, asked, version)
        except KafkaError as error:
            return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=_for_version(error.code, version))

    def _answer(self, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition, version: int) -> ListOffsetsPartitionResponse:
        if asked.timestamp < 0 and version < SPECIAL_TIMESTAMP_VERSIONS_MIN.get(asked.timestamp, version + 1):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        partition = self._replica_manager.get_partition(topic, asked.partition_index)
        only_leader = request.replica_id != DEBUGGING_REPLICA_ID
        partition_log = partition.get_readable_log(asked.current_leader_epoch, only_leader)
        try:
            found = _find(partition, partition_log, asked.timestamp, request)
        except StorageError as error:
            self._replica_manager.fail_log_dir(partition_log.directory.parent, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        except DecodeError as error:
            # Appends do not walk the records, so a search may be the first to meet malformed ones.
            message = "timestamp search failed partition=%r timestamp=%d error=%s"
            self._log.warning("timestamp search failed", message, partition, asked.timestamp, error)
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE) from error
        found.partition_index = asked.partition_index
        if version < LEADER_EPOCH_VERSION_MIN:
            found.leader_epoch = NO_EPOCH
        return found


def _find(partition: Partition, partition_log: Log, timestamp: int, request: ListOffsetsRequest) -> ListOffsetsPartitionResponse:
    if timestamp == EARLIEST_TIMESTAMP:
        return _found(NO_TIMESTAMP, partition_log.log_start_offset, _start_epoch(partition_log))
    if timestamp == EARLIEST_LOCAL_TIMESTAMP:
        offset = partition_log.local_log_start_offset
        epoch = partition_log.leader_epochs.find_epoch_for_offset(offset)
        return _found(NO_TIMESTAMP, offset, NO_EPOCH if epoch is None else epoch)
    end_offset = partition.end_offset(_isolation(request))
    is_lagging = request.replica_id == CONSUMER_REPLICA_ID and partition.in_sync.epoch_start_offset > partition_log.high_watermark
    if timestamp == LATEST_TIMESTAMP:
        if is_lagging:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return _found(NO_TIMESTAMP, end_offset, partition.leader_epoch)
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return _found(NO_TIMESTAMP, UNKNOWN_OFFSET, NO_EPOCH)
    if timestamp == MAX_TIMESTAMP:
        record = partition_log.find_max_timestamp()
    else:
        record = partition_log.find_offset_by_timestamp(timestamp, end_offset=end_offset)
    if record is not None and record.offset < end_offset:
        return _found(record.timestamp, record.offset, record.leader_epoch)
    if is_lagging:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return ListOffsetsPartitionResponse()


def _isolation(request: ListOffsetsRequest) -> FetchIsolation:
    if request.replica_id != CONSUMER_REPLICA_ID:
        return FetchIsolation.LOG_END
    return FetchIsolation.TXN_COMMITTED if request.isolation_level == READ_COMMITTED else FetchIsolation.HIGH_WATERMARK


def _found(timestamp: int, offset: int, leader_epoch: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(timestamp=timestamp, offset=offset, leader_epoch=leader_epoch)


def _start_epoch(partition_log: Log) -> int:
    """Returns the epoch of the log start offset; -1 if the cache begins after it."""
    entry = partition_log.leader_epochs.earliest_entry
    return entry.epoch if entry is not None and entry.start_offset <= partition_log.log_start_offset else NO_EPOCH


def _refuse(answer: ListOffsetsPartitionResponse, code: ErrorCode) -> None:
    """Turn `answer` into this error, without an offset."""
    answer.error_code = code
    answer.timestamp, answer.offset, answer.leader_epoch = NO_TIMESTAMP, UNKNOWN_OFFSET, NO_EPOCH


def _for_version(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < OFFSET_NOT_AVAILABLE_VERSION_MIN:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code
