"""Builds Fetch responses from reads. The usual response, one partition without an error, is made from a template.

Used by broker/handlers/produce_fetch/fetch.py only, whose docstring is the contract.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from broker.handlers.produce_fetch.current_leader import name_leader
from broker.handlers.produce_fetch.fetch_size import response_size
from broker.loop.turns import ELEMENTS_AT_ONCE, at_once_or_in_turns
from broker.metadata.metadata_cache import MetadataCache
from broker.network.context import RequestContext
from broker.observability.metrics import Metrics
from broker.replication.fetch.fetch_data import PartitionRead
from broker.replication.fetch.fetch_session_cache import NO_SESSION_ID, FetchContext
from broker.replication.quotas import ReplicationQuota
from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from protocol.templates import (
    RECORDS_SPECIMEN,
    Hole,
    PreparedRecordsResponse,
    PreparedResponse,
    RecordsTemplate,
    compile_records_template,
)

NEVER_READ_ERRORS = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
STORAGE_ERROR_VERSION_MIN = 6
CURRENT_LEADER_VERSION_MIN = 16
FETCH_KEY = 1
TEMPLATE_VERSION_MIN = 10  # from here on every hole is in the encoding
TEMPLATES_MAX = 10_000  # (version, topic, isolation); each takes about 1 KB
# Numbers that stand out in an encoded response: their bytes are not UTF-8, so no name contains them.
SESSION_ID_HOLE = Hole(0x7EA1C3D5, 4)
INDEX_HOLE = Hole(0x7EA2C4D6, 4)
HIGH_WATERMARK_HOLE = Hole(0x7EB2D4E6F8091A2B, 8)
LAST_STABLE_OFFSET_HOLE = Hole(0x7EC3E5F70A1B2C3D, 8)
LOG_START_OFFSET_HOLE = Hole(0x7ED4F6081B2C3D4E, 8)
CURRENT_LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class FetchAnswers:
    """Builds the responses. It keeps only templates between requests."""

    def __init__(self, metadata: MetadataCache, metrics: Metrics, quota: ReplicationQuota) -> None:
        self._metadata = metadata
        self._metrics = metrics
        self._quota = quota
        self._templates: dict[tuple[int, str, bytes, bool], RecordsTemplate | None] = {}

    def respond(self, context: RequestContext, session: FetchContext, reads: list[PartitionRead], is_from_follower: bool) -> Any:
        """Returns the response: of a single partition without an error by its template, of many partitions in turns."""
        version = context.api_version
        throttle_time_ms = 0
        if (charge := context.charge) is not None:
            if is_from_follower:
                charge.settle_exempt()
            else:
                throttle_time_ms = charge.settle_fetch(response_size(version, reads, is_incremental=session.session_id != NO_SESSION_ID))
                if charge.is_taken_back:
                    return _empty(session, reads, throttle_time_ms)
        reads = session.answer(reads)
        if len(reads) == 1 and version >= TEMPLATE_VERSION_MIN:
            read = reads[0]
            is_usual = read.error_code is ErrorCode.NONE and read.diverging_epoch is None and read.preferred_read_replica < 0
            if is_usual and not read.aborted_transactions:
                prepared = self._fill_template(version, session.session_id, read, is_from_follower)
                if prepared is not None:
                    return prepared.throttled(throttle_time_ms) if throttle_time_ms else prepared
        response = FetchResponse(throttle_time_ms=throttle_time_ms, error_code=session.error_code, session_id=session.session_id)
        if not reads:
            return response
        filling = self._add_reads(response, reads, version, context.connection.listener.name, is_from_follower)
        return at_once_or_in_turns(filling, ELEMENTS_AT_ONCE)

    def _fill_template(self, version: int, session_id: int, read: PartitionRead, is_from_follower: bool) -> PreparedResponse | None:
        """Saves 6 µs over building and encoding the messages. Returns None for a topic whose random id contains a placeholder's bytes:
        one in 300 million."""
        target, size_bytes = read.target, read.size_bytes
        topic = target.topic or ""
        key = (version, topic, target.topic_id, read.aborted_transactions is None)
        if key not in self._templates:
            self._add_template(key)
        template = self._templates[key]
        if template is None:
            return None
        topic_metrics = self._metrics.topic(topic)
        if is_from_follower:
            topic_metrics.replication_bytes_out += size_bytes
            if self._quota.throttled:
                self._record_throttled((read,))
        else:
            topic_metrics.bytes_out += size_bytes
        values = (session_id, target.partition, read.high_watermark, read.last_stable_offset, read.log_start_offset)
        return PreparedRecordsResponse(template, values, read.records, size_bytes)

    def _add_template(self, key: tuple[int, str, bytes, bool]) -> None:
        if len(self._templates) >= TEMPLATES_MAX:
            self._templates.clear()
        try:
            self._templates[key] = _compile_template(*key)
        except ValueError:
            self._templates[key] = None

    def _add_reads(
        self, response: FetchResponse, reads: list[PartitionRead], version: int, listener_name: str, is_from_follower: bool
    ) -> Generator[None, None, FetchResponse]:
        topic: FetchableTopicResponse | None = None
        if is_from_follower and self._quota.throttled:
            self._record_throttled(reads)
        try:
            for read in reads:
                target = read.target
                if version < STORAGE_ERROR_VERSION_MIN and read.error_code is ErrorCode.KAFKA_STORAGE_ERROR:
                    read.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # an error that such clients retry
                name = target.topic or ""
                if topic is None or topic.topic_id != target.topic_id or topic.topic != name:
                    topic = FetchableTopicResponse(topic=name, topic_id=target.topic_id, partitions=[])
                    response.responses.append(topic)
                partition = _partition_data(read)
                if read.error_code in CURRENT_LEADER_ERRORS and version >= CURRENT_LEADER_VERSION_MIN:
                    name_leader(self._metadata, listener_name, name, target.partition, partition, response.node_endpoints, NodeEndpoint)
                topic.partitions.append(partition)
                size_bytes = read.size_bytes
                if name and size_bytes:
                    topic_metrics = self._metrics.topic(name)
                    if is_from_follower:
                        topic_metrics.replication_bytes_out += size_bytes
                    else:
                        topic_metrics.bytes_out += size_bytes
                yield
        except BaseException:
            for read in reads:  # they will not be sent
                read.release()
            raise
        return response

    def _record_throttled(self, reads: Iterable[PartitionRead]) -> None:
        """Count the bytes sent to throttled replicas, including those in sync. Kafka counts the answer's other bytes as well, some 50 a
        partition."""
        quota = self._quota
        quota.record(sum(each.size_bytes for each in reads if quota.is_throttled(each.target.topic, each.target.partition)))


def _empty(session: FetchContext, reads: list[PartitionRead], throttle_time_ms: int) -> FetchResponse:
    """The response to a throttled consumer, which fetches the same again."""
    for read in reads:
        read.release()
    session.answer_nothing()
    return FetchResponse(throttle_time_ms=throttle_time_ms, error_code=session.error_code, session_id=session.session_id)


def _compile_template(version: int, topic: str, topic_id: bytes, is_uncommitted: bool) -> RecordsTemplate:
    partition = PartitionData(
        partition_index=INDEX_HOLE.specimen,
        high_watermark=HIGH_WATERMARK_HOLE.specimen,
        last_stable_offset=LAST_STABLE_OFFSET_HOLE.specimen,
        log_start_offset=LOG_START_OFFSET_HOLE.specimen,
        aborted_transactions=None if is_uncommitted else [],
        records=RECORDS_SPECIMEN,
    )
    specimen = FetchResponse(
        session_id=SESSION_ID_HOLE.specimen,
        responses=[FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=[partition])],
    )
    holes = (SESSION_ID_HOLE, INDEX_HOLE, HIGH_WATERMARK_HOLE, LAST_STABLE_OFFSET_HOLE, LOG_START_OFFSET_HOLE)
    return compile_records_template(APIS[FETCH_KEY], version, specimen, holes)


def _partition_data(read: PartitionRead) -> PartitionData:
    data = PartitionData(
        partition_index=read.target.partition,
        error_code=read.error_code,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        aborted_transactions=[] if read.error_code in NEVER_READ_ERRORS else None,
        preferred_read_replica=read.preferred_read_replica,
        records=read.records,
    )
    if read.aborted_transactions is not None:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset) for aborted in read.aborted_transactions
        ]
    if read.diverging_epoch is not None:
        data.diverging_epoch = EpochEndOffset(epoch=read.diverging_epoch.epoch, end_offset=read.diverging_epoch.end_offset)
    return data
