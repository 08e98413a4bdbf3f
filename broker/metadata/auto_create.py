"""AutoTopicCreator: topics that come to be because a client asked for their metadata, or a coordinator for its own topic.

The asking request is answered at once with "unknown", and the client asks again. Names on their way are kept, so that a thousand
impatient clients cause one creation.

Source: kafka.server.AutoTopicCreationManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from broker.metadata.topic_names import find_name_fault
from config.server import ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse

logger = logging.getLogger(__name__)

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"

IN_FLIGHT_MAX = 10_000
"""Topics on their way at a time; beyond it a client is only told "unknown" and asks again."""


class TopicCreator(Protocol):
    """The part of the ControllerClient that this needs."""

    def begin_creating_topics(self, request: CreateTopicsRequest, on_done: Callable[[CreateTopicsResponse | KafkaError], None]) -> None: ...


class AutoTopicCreator:
    """Owns the names of topics on their way."""

    def __init__(self, creator: TopicCreator, config: ServerConfig) -> None:
        self._creator = creator
        self._config = config
        self._in_flight: set[str] = set()

    def create(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        """Begin to create `names`; returns the error that says so for each: unknown as yet, or no topic name at all."""
        errors: dict[str, ErrorCode] = {}
        creatable = []
        for name in names:
            if find_name_fault(name) is not None:
                errors[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
                continue
            errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if name not in self._in_flight and len(self._in_flight) < IN_FLIGHT_MAX:
                self._in_flight.add(name)
                creatable.append(name)
        for name in creatable:
            # One request each: one that cannot be created must not keep the others from it.
            self._begin(name)
        return errors

    def _begin(self, name: str) -> None:
        def on_done(outcome: CreateTopicsResponse | KafkaError) -> None:
            self._in_flight.discard(name)
            _log_outcome(name, outcome)

        self._creator.begin_creating_topics(CreateTopicsRequest(topics=[self._creatable(name)]), on_done)

    def _creatable(self, name: str) -> CreatableTopic:
        config = self._config
        if name == GROUP_METADATA_TOPIC:
            return _internal_topic(
                name,
                config.offsets_topic_num_partitions,
                config.offsets_topic_replication_factor,
                {
                    "cleanup.policy": "compact",
                    # offsets.topic.compression.codec is applied by the coordinator when it writes.
                    "compression.type": "producer",
                    "segment.bytes": str(config.offsets_topic_segment_bytes),
                },
            )
        if name == TRANSACTION_STATE_TOPIC:
            return _internal_topic(
                name,
                config.transaction_state_log_num_partitions,
                config.transaction_state_log_replication_factor,
                {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "min.insync.replicas": str(config.transaction_state_log_min_isr),
                    "segment.bytes": str(config.transaction_state_log_segment_bytes),
                    "unclean.leader.election.enable": "false",
                },
            )
        return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)


def _internal_topic(name: str, partitions_count: int, replication_factor: int, configs: dict[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions_count,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )


def _log_outcome(name: str, outcome: CreateTopicsResponse | KafkaError) -> None:
    if isinstance(outcome, KafkaError):
        logger.warning("auto-creation of topic %s failed: %s", name, outcome)
        return
    code = outcome.topics[0].error_code
    if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        logger.warning("auto-creation of topic %s failed: %s %s", name, ErrorCode(code).name, outcome.topics[0].error_message)
