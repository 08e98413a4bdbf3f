from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.cluster.auto_create import AutoTopicCreator, TopicCreator
from broker.loop.turns import SLICE_US
from broker.metadata.change_log import ChangeLog
from config.server import ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from tests.broker.metadata.room import context
from tests.support.clock import ManualClock
from tests.support.doubles import stands_for


@stands_for(TopicCreator, own=("answers", "on_request", "requests"))
class _Creator:
    """Keeps what it is asked for until the test answers."""

    def __init__(self) -> None:
        self.requests: list[CreateTopicsRequest] = []
        self.answers: list[Callable[[CreateTopicsResponse | KafkaError], None]] = []
        self.alive_brokers_count = 1
        self.on_request: Callable[[], object] = lambda: None

    def begin_creating_topics(self, request: CreateTopicsRequest, on_done: Callable[[CreateTopicsResponse | KafkaError], None]) -> None:
        self.on_request()
        self.requests.append(request)
        self.answers.append(on_done)


def _creator(clock: ManualClock | None = None, **settings: Any) -> tuple[_Creator, AutoTopicCreator]:
    creator = _Creator()
    clock = clock or ManualClock()
    return creator, AutoTopicCreator(creator, ServerConfig(**settings), ChangeLog(clock), clock)


def _refuse_replication_factor(creator: _Creator, name: str) -> None:
    result = CreatableTopicResult(name=name, error_code=ErrorCode.INVALID_REPLICATION_FACTOR, error_message="1 broker(s)")
    creator.answers[-1](CreateTopicsResponse(topics=[result]))


def test_a_missing_topic_is_unknown_now_and_on_its_way() -> None:
    creator, auto = _creator()

    assert auto.create(["t"]) == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert (creator.requests[0].topics[0].num_partitions, creator.requests[0].topics[0].replication_factor) == (-1, -1)


def test_a_topic_on_its_way_is_not_created_again() -> None:
    creator, auto = _creator()

    for _ in range(3):
        assert auto.create(["t"]) == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    assert len(creator.requests) == 1


def test_a_topic_that_could_not_be_created_may_be_tried_again() -> None:
    creator, auto = _creator()
    auto.create(["t"])

    creator.answers[0](KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    auto.create(["t"])
    creator.answers[1](CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=ErrorCode.INVALID_REPLICATION_FACTOR)]))
    auto.create(["t"])

    assert len(creator.requests) == 3


def test_a_bad_name_is_refused_and_nothing_is_asked() -> None:
    creator, auto = _creator()

    assert auto.create(["b d"]) == {"b d": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert creator.requests == []


def test_the_offsets_topic_has_its_own_settings() -> None:
    creator, auto = _creator()

    auto.create(["__consumer_offsets"])

    topic = creator.requests[0].topics[0]
    assert (topic.num_partitions, topic.replication_factor) == (50, 3)
    assert {config.name: config.value for config in topic.configs} == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


def test_a_replication_factor_that_cannot_be_had_is_named_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Consumers ask for their coordinator ten times a second, and are told no more than "not available"."""
    clock = ManualClock()
    creator, auto = _creator(clock)

    for _ in range(100):
        auto.create(["__consumer_offsets"])
        _refuse_replication_factor(creator, "__consumer_offsets")

    line = (
        "topic __consumer_offsets cannot be created, and consumer groups wait for it: "
        "offsets.topic.replication.factor=3 but 1 broker is alive: set it to 1"
    )
    assert caplog.messages == [line]
    clock.advance(60_000)
    auto.create(["__consumer_offsets"])
    _refuse_replication_factor(creator, "__consumer_offsets")
    assert caplog.messages == [line, line]


def test_the_default_replication_factor_is_named_for_other_topics(caplog: pytest.LogCaptureFixture) -> None:
    creator, auto = _creator(default_replication_factor=2)

    auto.create(["t"])
    _refuse_replication_factor(creator, "t")

    assert caplog.messages == ["topic t cannot be created: default.replication.factor=2 but 1 broker is alive: set it to 1"]


def _take(creator: _Creator, clock: ManualClock, slices: float) -> None:
    """Each creation takes so many slices of the loop's time."""
    creator.on_request = lambda: clock.stall(slices * SLICE_US / 1000)


def test_creations_begin_in_slices_of_the_loops_time() -> None:
    clock = ManualClock()
    creator, auto = _creator(clock)
    _take(creator, clock, 0.5)
    names = [f"t{number}" for number in range(5)]

    auto.create(names, context(9))
    begun_at_once_count = len(creator.requests)
    clock.advance(100)

    assert begun_at_once_count == 2
    assert [request.topics[0].name for request in creator.requests] == names


def test_ten_creations_are_on_their_way_and_others_follow_their_answers() -> None:
    clock = ManualClock()
    creator, auto = _creator(clock)
    names = [f"t{number}" for number in range(25)]

    for name in names:
        auto.create([name], context(9))
    clock.advance(100)
    begun_count = len(creator.requests)
    for answered_count in range(len(names)):
        creator.answers[answered_count](KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        clock.advance(0)

    assert begun_count == 10
    assert [request.topics[0].name for request in creator.requests] == names


def test_a_coordinators_topic_does_not_wait_behind_a_clients() -> None:
    clock = ManualClock()
    creator, auto = _creator(clock)
    _take(creator, clock, 1)
    auto.create([f"t{number}" for number in range(40)], context(9))

    auto.create(["__consumer_offsets"])
    clock.advance(0)

    assert creator.requests[1].topics[0].name == "__consumer_offsets"


def test_nothing_begins_after_the_end() -> None:
    clock = ManualClock()
    creator, auto = _creator(clock)
    _take(creator, clock, 1)
    auto.create([f"t{number}" for number in range(40)], context(9))

    auto.close()
    clock.advance(1_000)

    assert len(creator.requests) == 1
