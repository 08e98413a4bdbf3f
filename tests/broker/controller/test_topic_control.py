"""What the controller answers and appends for topics; codes and messages as a real 4.3.1 broker gave them."""

from __future__ import annotations

from typing import Any

import pytest

from config.server import ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.stored.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from protocol.uuids import ZERO_UUID
from tests.broker.controller.cluster import collected
from tests.broker.metadata.room import DIRECTORY_ID, creation, make_controller, registration


def _refusal(request: CreateTopicsRequest, **brokers: Any) -> tuple[int, str | None]:
    result = collected(make_controller(1).topics.create_topics(request))
    assert result.records == []
    return result.response.topics[0].error_code, result.response.topics[0].error_message


def _assigned(*assignments: tuple[int, list[int]], partitions: int = -1, replicas: int = -1) -> CreateTopicsRequest:
    manual = [CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in assignments]
    return CreateTopicsRequest(
        topics=[CreatableTopic(name="t", num_partitions=partitions, replication_factor=replicas, assignments=manual)]
    )


def test_a_topic_is_its_record_then_its_configs_then_its_partitions() -> None:
    result = collected(make_controller(1).topics.create_topics(creation("t", 2, 1, retention_ms="5")))

    assert [type(record) for record in result.records] == [TopicRecord, ConfigRecord, PartitionRecord, PartitionRecord]
    partition = result.records[2]
    assert (partition.replicas, partition.isr, partition.leader, partition.leader_epoch) == ([1], [1], 1, 0)
    assert partition.directories == [DIRECTORY_ID]


def test_the_answer_has_id_counts_and_every_config() -> None:
    controller = make_controller(1, config=ServerConfig(num_partitions=3))

    topic = collected(controller.topics.create_topics(creation("t", retention_ms="5"))).response.topics[0]

    assert (topic.error_code, topic.error_message, topic.num_partitions, topic.replication_factor) == (0, None, 3, 1)
    assert topic.topic_id[6] >> 4 == 4
    configs = {config.name: (config.value, config.config_source) for config in topic.configs or []}
    assert configs["retention.ms"] == ("5", 1)
    assert configs["segment.bytes"] == ("1073741824", 5)


def test_computing_does_not_change_the_state() -> None:
    controller = make_controller(1)

    collected(controller.topics.create_topics(creation("t", 1, 1)))

    assert controller.state.topics == {}


def test_validate_only_answers_without_records() -> None:
    result = collected(make_controller(1).topics.create_topics(creation("t", 2, 1, validate_only=True)))

    assert result.records == []
    assert result.response.topics[0].num_partitions == 2


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "the empty string is not allowed"),
        ("..", "'..' is not allowed"),
        ("b d", "'b d' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
    ],
)
def test_bad_names_are_refused(name: str, why: str) -> None:
    assert _refusal(creation(name, 1, 1)) == (ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (creation("t", 0, 1), ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."),
        (
            creation("t", 1, 0),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            creation("t", 1, 5),
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 5 time(s): The target replication factor of 5 cannot be reached because only 1 broker(s) "
            "are registered or some brokers have all their log directories cordoned.",
        ),
        (
            _assigned((0, [1]), partitions=3),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            _assigned((0, [1]), replicas=1),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            _assigned((0, [1]), (0, [1])),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            _assigned((0, [1]), (2, [1])),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            _assigned((0, [1, 1])),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            _assigned((0, [9])),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (_assigned((0, [])), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."),
        (creation("t", 1, 1, nope="1"), ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
        (creation("__cluster_metadata", 1, 1), ErrorCode.INVALID_REQUEST, "Creation of internal topic __cluster_metadata is prohibited."),
    ],
)
def test_refusals_have_kafkas_codes_and_words(request_: CreateTopicsRequest, code: ErrorCode, message: str) -> None:
    assert _refusal(request_) == (code, message)


def test_a_bad_config_value_is_refused() -> None:
    code, message = _refusal(creation("t", 1, 1, retention_ms="abc"))

    assert code == ErrorCode.INVALID_CONFIG
    assert message is not None
    assert "retention.ms" in message


def test_a_null_config_is_refused() -> None:
    request = creation("t", 1, 1)
    request.topics[0].configs = [CreatableTopicConfig(name="retention.ms", value=None)]

    assert _refusal(request) == (ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: retention.ms")


def test_an_existing_or_colliding_name_is_refused() -> None:
    controller = make_controller(1)
    controller.replay(collected(controller.topics.create_topics(creation("a.b", 1, 1))).records)

    existing = collected(controller.topics.create_topics(creation("a.b", 1, 1))).response.topics[0]
    colliding = collected(controller.topics.create_topics(creation("a_b", 1, 1))).response.topics[0]

    assert (existing.error_code, existing.error_message) == (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a.b' already exists.")
    assert colliding.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert colliding.error_message == "Topic 'a_b' collides with existing topic: a.b"


def test_a_deleted_topic_collides_with_nothing() -> None:
    controller = make_controller(1)
    controller.replay(collected(controller.topics.create_topics(creation("a.b", 1, 1))).records)
    controller.replay(collected(controller.topics.delete_topics(_deletion(names=["a.b"]), 5)).records)

    assert collected(controller.topics.create_topics(creation("a_b", 1, 1))).response.topics[0].error_code == 0


def test_a_name_asked_for_twice_is_refused_once_and_the_others_are_created() -> None:
    request = CreateTopicsRequest(topics=creation("d", 1, 1).topics * 2 + creation("t", 1, 1).topics)

    response = collected(make_controller(1).topics.create_topics(request)).response

    assert [(topic.name, topic.error_code) for topic in response.topics] == [("t", 0), ("d", ErrorCode.INVALID_REQUEST)]


def test_ten_thousand_records_are_too_many_for_one_request() -> None:
    with pytest.raises(KafkaError) as refused:
        collected(make_controller(1).topics.create_topics(creation("big", 10_000, 1)))

    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_a_request_for_too_much_says_nothing_about_its_topics() -> None:
    controller = make_controller(1)
    controller.replay(collected(controller.topics.create_topics(creation("t", 1, 1))).records)

    with pytest.raises(KafkaError, match="Excessively large number of partitions per request"):
        collected(controller.topics.create_topics(creation("t", 20_000, 1)))


def test_a_huge_count_is_refused_before_anything_is_built() -> None:
    with pytest.raises(KafkaError):
        collected(make_controller(1).topics.create_topics(creation("big", 2**31 - 1, 1)))


def test_only_active_replicas_are_in_the_isr() -> None:
    controller = make_controller(1, 2)
    controller.replay(registration(3, is_fenced=True))

    result = collected(controller.topics.create_topics(_assigned((0, [3, 1, 2]))))

    assert (result.records[1].replicas, result.records[1].isr, result.records[1].leader) == ([3, 1, 2], [1, 2], 1)


# Deletion


def _deletion(*topics: tuple[str | None, bytes], names: list[str] | None = None) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=id_) for name, id_ in topics], topic_names=names or [])


def test_topics_are_deleted_by_name_and_by_id() -> None:
    controller = make_controller(1)
    for name in ("a", "b"):
        controller.replay(collected(controller.topics.create_topics(creation(name, 1, 1))).records)
    ids = {name: topic.topic_id for name, topic in controller.state.topics.items()}

    result = collected(controller.topics.delete_topics(_deletion(("a", ZERO_UUID), (None, ids["b"])), 6))

    assert {record.topic_id for record in result.records} == set(ids.values())
    assert all(isinstance(record, RemoveTopicRecord) for record in result.records)
    assert {(topic.name, topic.topic_id, topic.error_code) for topic in result.response.responses} == {
        ("a", ids["a"], 0),
        ("b", ids["b"], 0),
    }


def test_every_wrong_way_of_naming_a_topic_is_answered() -> None:
    unknown = bytes(15) + b"\x4d"
    request = _deletion(
        ("nope", ZERO_UUID), (None, unknown), (None, ZERO_UUID), ("d", ZERO_UUID), ("d", ZERO_UUID), ("x", bytes(15) + b"\x05")
    )

    result = collected(make_controller(1).topics.delete_topics(request, 6))

    assert result.records == []
    assert {(topic.name, topic.error_code) for topic in result.response.responses} == {
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, ErrorCode.INVALID_REQUEST),
        ("d", ErrorCode.INVALID_REQUEST),
        ("x", ErrorCode.INVALID_REQUEST),
    }


def test_a_topic_named_by_name_and_by_its_id_is_not_deleted() -> None:
    controller = make_controller(1)
    controller.replay(collected(controller.topics.create_topics(creation("a", 1, 1))).records)

    result = collected(controller.topics.delete_topics(_deletion(("a", ZERO_UUID), (None, controller.state.topics["a"].topic_id)), 6))

    assert result.records == []
    assert [topic.error_code for topic in result.response.responses] == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_disabled_deletion_is_an_error_of_the_whole_request(version: int, code: ErrorCode) -> None:
    controller = make_controller(1, config=ServerConfig(delete_topic_enable=False))

    with pytest.raises(KafkaError) as refused:
        collected(controller.topics.delete_topics(_deletion(names=["a"]), version))

    assert refused.value.code is code


# More partitions


def _increase(name: str, count: int, *assignments: list[int], validate_only: bool = False) -> CreatePartitionsRequest:
    manual = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments] if assignments else None
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=count, assignments=manual)], validate_only=validate_only)


def test_new_partitions_continue_the_indexes() -> None:
    controller = make_controller(1)
    controller.replay(collected(controller.topics.create_topics(creation("t", 3, 1))).records)

    result = collected(controller.topics.create_partitions(_increase("t", 5)))

    assert [record.partition_id for record in result.records] == [3, 4]
    assert (result.response.results[0].error_code, result.response.results[0].error_message) == (0, None)


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (_increase("nope", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
        (_increase("t", 3), ErrorCode.INVALID_PARTITIONS, "Topic already has 3 partition(s)."),
        (
            _increase("t", 1),
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 3 partition(s); 1 would not be an increase.",
        ),
        (
            _increase("t", 5, [1]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            _increase("t", 4, [1, 2]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
    ],
)
def test_increases_are_refused_in_kafkas_words(request_: CreatePartitionsRequest, code: ErrorCode, message: str | None) -> None:
    controller = make_controller(1)
    controller.replay(collected(controller.topics.create_topics(creation("t", 3, 1))).records)

    result = collected(controller.topics.create_partitions(request_))

    assert result.records == []
    assert (result.response.results[0].error_code, result.response.results[0].error_message) == (code, message)


def test_too_many_new_partitions_are_refused_and_none_is_created() -> None:
    controller = make_controller(1)
    controller.replay(collected(controller.topics.create_topics(creation("t", 3, 1))).records)

    with pytest.raises(KafkaError) as refused:
        collected(controller.topics.create_partitions(_increase("t", 20_000)))

    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_partitions_beyond_the_limit_are_refused_for_topics_and_additions_alike() -> None:
    controller = make_controller(1, replicas_max=5)
    controller.replay(collected(controller.topics.create_topics(creation("t", 4, 1))).records)

    with pytest.raises(KafkaError) as topic_refused:
        collected(controller.topics.create_topics(creation("u", 2, 1)))
    with pytest.raises(KafkaError) as addition_refused:
        collected(
            controller.topics.create_partitions(
                CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=6, assignments=None)])
            )
        )

    assert topic_refused.value.code is addition_refused.value.code is ErrorCode.POLICY_VIOLATION
    assert collected(controller.topics.create_topics(creation("u", 1, 1))).records
