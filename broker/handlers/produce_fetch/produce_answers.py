"""Builds Produce responses from the results. The usual response, one partition without an error, is made from a template.

Used by broker/handlers/produce_fetch/produce.py only, whose docstring is the contract.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from broker.handlers.produce_fetch.current_leader import name_leader
from broker.loop.turns import ELEMENTS_AT_ONCE
from broker.metadata.metadata_cache import MetadataCache
from broker.network.context import RequestContext
from broker.observability.limited_log import LimitedLog
from broker.observability.log_fields import Fields
from broker.replication.delayed_produce import PartitionAppendResult
from protocol.apis import APIS
from protocol.errors import ErrorCode
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.templates import Hole, PreparedResponse, Template, compile_template
from protocol.uuids import ZERO_UUID

CURRENT_LEADER_VERSION_MIN = 10
LOG_START_OFFSET_VERSION_MIN = 5
NAMED_VERSION_MAX = 12  # later versions have topic ids
UNKNOWN_PREFIX = "unknown id "
"""No topic's name begins so: what stands for the name of a topic whose id is unknown, until it is answered."""
PRODUCE_KEY = 0
RECORD_ERRORS_PER_ANSWER = 10_000
TEMPLATES_MAX = 10_000  # (version, topic) pairs; each takes about 1 KB
# Numbers that stand out in an encoded response: their bytes are not UTF-8, so no name contains them.
INDEX_HOLE = Hole(0x7EA1C3D5, 4)
BASE_OFFSET_HOLE = Hole(0x7EB2D4E6F8091A2B, 8)
LOG_APPEND_TIME_HOLE = Hole(0x7EC3E5F70A1B2C3D, 8)
LOG_START_OFFSET_HOLE = Hole(0x7ED4F6081B2C3D4E, 8)


class ProduceAnswers:
    """Builds the responses. It keeps only templates between requests. Refusals are logged by `limited_log`."""

    def __init__(self, metadata: MetadataCache, limited_log: LimitedLog) -> None:
        self._metadata = metadata
        self._log = limited_log
        self._templates: dict[tuple[int, str | bytes], Template] = {}

    def respond(self, results: list[PartitionAppendResult], context: RequestContext) -> Any:
        """Returns the chunks of the usual response (a single partition without an error), made from its template; else the response, or
        for very many results a generator of it."""
        version = context.api_version
        throttle_time_ms = 0 if context.charge is None else context.charge.settle_produce(is_answered=True)
        if len(results) == 1:
            result = results[0]
            if result.error_code is ErrorCode.NONE:
                template = self._templates.get((version, result.topic)) or self._find_template(version, result.topic)
                if throttle_time_ms:
                    return _throttled(template, result, context, throttle_time_ms)
                fill = template.fill
                correlation_id, index, offset, time_ms = (
                    context.correlation_id,
                    result.partition,
                    result.base_offset,
                    result.log_append_time_ms,
                )
                if version < LOG_START_OFFSET_VERSION_MIN:
                    return [fill(correlation_id, index, offset, time_ms)]
                return [fill(correlation_id, index, offset, time_ms, result.log_start_offset)]
        answer = _Answer(self._metadata, self._log, context)
        answer.response.throttle_time_ms = throttle_time_ms
        if len(results) > ELEMENTS_AT_ONCE:
            return _add_in_turns(answer, results)
        for result in results:
            answer.add(result)
        return answer.response

    def _find_template(self, version: int, topic: str) -> Template:
        """Keyed by the topic's id in versions with ids: a topic may be deleted and created again under its name."""
        if version <= NAMED_VERSION_MAX:
            return self._compile_template(version, topic)
        topic_id = id_of(self._metadata, topic)
        return self._templates.get((version, topic_id)) or self._compile_template(version, topic_id)

    def _compile_template(self, version: int, topic: str | bytes) -> Template:
        """For a topic's name or, in later versions, its id."""
        if len(self._templates) >= TEMPLATES_MAX:
            self._templates.clear()
        partition = PartitionProduceResponse(
            index=INDEX_HOLE.specimen,
            base_offset=BASE_OFFSET_HOLE.specimen,
            log_append_time_ms=LOG_APPEND_TIME_HOLE.specimen,
            log_start_offset=LOG_START_OFFSET_HOLE.specimen,
        )
        answered = TopicProduceResponse(topic_id=topic) if isinstance(topic, bytes) else TopicProduceResponse(name=topic)
        answered.partition_responses = [partition]
        specimen = ProduceResponse(responses=[answered])
        holes = [INDEX_HOLE, BASE_OFFSET_HOLE, LOG_APPEND_TIME_HOLE]
        if version >= LOG_START_OFFSET_VERSION_MIN:
            holes.append(LOG_START_OFFSET_HOLE)
        template = self._templates[version, topic] = compile_template(APIS[PRODUCE_KEY], version, specimen, holes)
        return template


def _throttled(template: Template, result: PartitionAppendResult, context: RequestContext, throttle_time_ms: int) -> list[Any]:
    """The usual response, to a client that is over a quota."""
    values: tuple[int, ...] = (result.partition, result.base_offset, result.log_append_time_ms)
    if context.api_version >= LOG_START_OFFSET_VERSION_MIN:
        values += (result.log_start_offset,)
    return PreparedResponse(template, values).throttled(throttle_time_ms).to_chunks(context.correlation_id)


def _add_in_turns(answer: _Answer, results: list[PartitionAppendResult]) -> Generator[None, None, ProduceResponse]:
    for result in results:
        answer.add(result)
        yield
    return answer.response


def unknown_name(topic_id: bytes) -> str:
    """Returns a placeholder for the name of a topic whose id is unknown."""
    return UNKNOWN_PREFIX + topic_id.hex()


def id_of(metadata: MetadataCache, name: str) -> bytes:
    """Returns the topic's present id, or the one in the request; the zero id for a deleted topic."""
    if name.startswith(UNKNOWN_PREFIX):
        return bytes.fromhex(name.removeprefix(UNKNOWN_PREFIX))
    topic = metadata.find_topic(name)
    return ZERO_UUID if topic is None else topic.topic_id


class _Answer:
    """Collects a response from its results."""

    def __init__(self, metadata: MetadataCache, limited_log: LimitedLog, context: RequestContext) -> None:
        self.response = ProduceResponse()
        self._metadata = metadata
        self._log = limited_log
        self._context = context
        self._topic: TopicProduceResponse | None = None
        self._record_errors_left = RECORD_ERRORS_PER_ANSWER

    def add(self, result: PartitionAppendResult) -> None:
        topic = self._topic
        if topic is None or topic.name != result.topic:
            topic = self._topic = TopicProduceResponse(name=result.topic, partition_responses=[])
            if self._context.api_version > NAMED_VERSION_MAX:
                topic.topic_id = id_of(self._metadata, result.topic)
            self.response.responses.append(topic)
        partition = PartitionProduceResponse(
            index=result.partition,
            error_code=result.error_code,
            base_offset=result.base_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=result.log_start_offset,
        )
        if result.error_code is not ErrorCode.NONE:
            self._add_error_details(result, partition)
            self._log_refusal(result)
            if result.topic.startswith(UNKNOWN_PREFIX):
                partition.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                partition.error_message = None
        topic.partition_responses.append(partition)

    def _log_refusal(self, result: PartitionAppendResult) -> None:
        """Log a refusal, because many producers ignore errors. Each kind of error has its own limit, so that none hides another."""
        error, context = result.error_code.name, self._context
        kind = f"produce refused with {error}"
        if self._log.omits(kind):
            return
        reason = result.error_message or (result.record_errors[0].message if result.record_errors else None)
        who = {"principal": context.connection.principal, "client": context.connection.client_host, "client_id": context.client_id}
        facts = Fields(topic=result.topic, partition=result.partition, error=error, reason=reason, **who)
        self._log.info(kind, "produce refused %s", facts)

    def _add_error_details(self, result: PartitionAppendResult, partition: PartitionProduceResponse) -> None:
        partition.error_message = result.error_message
        named = (result.record_errors or ())[: self._record_errors_left]
        self._record_errors_left -= len(named)
        partition.record_errors = [
            BatchIndexAndErrorMessage(batch_index=error.batch_index, batch_index_error_message=error.message) for error in named
        ]
        if result.error_code is not ErrorCode.NOT_LEADER_OR_FOLLOWER or self._context.api_version < CURRENT_LEADER_VERSION_MIN:
            return
        endpoints, listener_name = self.response.node_endpoints, self._context.connection.listener.name
        name_leader(self._metadata, listener_name, result.topic, result.partition, partition, endpoints, NodeEndpoint)
