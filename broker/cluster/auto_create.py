"""AutoTopicCreator: creates missing topics when a client asks for their metadata, and the internal topics of coordinators.

The request is answered at once with "unknown", and the client asks again. The names of topics being created are kept, so that a thousand
impatient clients cause one creation.

Source: kafka.server.AutoTopicCreationManager.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Protocol

from broker.loop.clock import Clock
from broker.loop.job import LoopJob
from broker.metadata.change_log import ChangeLog
from broker.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from broker.metadata.topic_names import find_name_fault
from broker.network.context import RequestContext
from broker.observability.limited_log import LimitedLog
from config.server import ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse

logger = logging.getLogger("barnabas.metadata")

IN_FLIGHT_MAX = 1_000
"""Topics on their way at a time; beyond it a client is only told "unknown" and asks again."""

BEGUN_MAX = 10
"""Creations that the controller has not answered. Each may be a task of one turn of the loop, and takes 0.3 to 0.6 ms of it."""

REPLICATION_FACTOR_PROPERTIES = {
    GROUP_METADATA_TOPIC: "offsets.topic.replication.factor",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.replication.factor",
}
"""Where the replication factor of an internal topic comes from; that of others is default.replication.factor."""


class TopicCreator(Protocol):
    """The part of the ControllerClient that AutoTopicCreator uses."""

    @property
    def alive_brokers_count(self) -> int: ...

    def begin_creating_topics(self, request: CreateTopicsRequest, on_done: Callable[[CreateTopicsResponse | KafkaError], None]) -> None: ...


class AutoTopicCreator:
    """Owns the names of topics being created. At most BEGUN_MAX creations are on their way to the controller, and the others wait. A
    coordinator's topic does not wait."""

    def __init__(self, creator: TopicCreator, config: ServerConfig, changes: ChangeLog, clock: Clock) -> None:
        self._creator = creator
        self._config = config
        self._changes = changes
        self._replication_log = LimitedLog(logger, clock, lines_max=1, tells_omitted=False)
        self._in_flight: set[str] = set()  # those that wait for their turn too
        self._waiting: deque[tuple[str, RequestContext | None]] = deque()
        self._begun_count = 0
        self._beginning = LoopJob(clock, self._begin_waiting)

    def create(self, names: Sequence[str], client: RequestContext | None = None) -> dict[str, ErrorCode]:
        """Begin to create `names`. Returns the error to answer for each: the topic is unknown so far, or the name is invalid.

        `client` asked for their metadata; None for a coordinator's own topic.
        """
        errors: dict[str, ErrorCode] = {}
        for name in names:
            if find_name_fault(name) is not None:
                errors[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
                continue
            errors[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if name not in self._in_flight and len(self._in_flight) < IN_FLIGHT_MAX:
                self._in_flight.add(name)
                if client is None:
                    self._waiting.appendleft((name, None))  # first: groups wait for it, and clients' topics may be thousands
                else:
                    self._waiting.append((name, client))
        if self._waiting:
            self._beginning.run_now()
        return errors

    def close(self) -> None:
        """Begin no more creations."""
        self._waiting.clear()
        self._beginning.stop()

    def _begin_waiting(self) -> Generator[None, None, None]:
        while self._waiting and (self._begun_count < BEGUN_MAX or self._waiting[0][1] is None):
            # One request for each topic, so that one that cannot be created does not stop the others.
            self._begin(*self._waiting.popleft())
            yield

    def _begin(self, name: str, client: RequestContext | None) -> None:
        def on_done(outcome: CreateTopicsResponse | KafkaError) -> None:
            self._in_flight.discard(name)
            self._begun_count -= 1
            self._log_outcome(name, outcome, client)
            if self._waiting:
                self._beginning.resume()

        self._begun_count += 1
        self._creator.begin_creating_topics(CreateTopicsRequest(topics=[self._creatable(name)]), on_done)

    def _log_outcome(self, name: str, outcome: CreateTopicsResponse | KafkaError, client: RequestContext | None) -> None:
        how = "internal" if client is None else "auto"
        if isinstance(outcome, KafkaError):
            self._changes.topic_not_created(name, outcome.code, outcome.message, client, how)
            return
        (result,) = outcome.topics
        error = ErrorCode(result.error_code)
        if error is ErrorCode.NONE:
            self._changes.topic_created(result, client, how)
        elif error is ErrorCode.INVALID_REPLICATION_FACTOR:
            self._log_replication_factor(self._creatable(name))
        elif error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            self._changes.topic_not_created(name, error, result.error_message, client, how)

    def _log_replication_factor(self, topic: CreatableTopic) -> None:
        """Log which setting to change: clients retry forever and see only "not available"."""
        key = REPLICATION_FACTOR_PROPERTIES.get(topic.name, "default.replication.factor")
        is_default = key not in REPLICATION_FACTOR_PROPERTIES.values()
        count = self._creator.alive_brokers_count
        self._replication_log.error(
            key,
            "topic %s cannot be created%s: %s=%d but %d broker%s alive: set it to %d",
            topic.name,
            ", and consumer groups wait for it" if topic.name == GROUP_METADATA_TOPIC else "",
            key,
            self._config.default_replication_factor if is_default else topic.replication_factor,
            count,
            " is" if count == 1 else "s are",
            count,
        )

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
