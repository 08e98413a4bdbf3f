"""Operations of the controller on very many things: their requests are decoded in turns, and the operation is awaited all the same."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumRequestPartitionData, DescribeQuorumRequestTopicData
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from tests.support.fixtures import server as server
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

MANY = 2_000
TIMEOUT_MS = 30_000
TOPIC_RESOURCE = 2
NAMES = [f"missing-{number}" for number in range(MANY)]
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

CASES = [
    (
        CreateTopicsRequest(topics=[CreatableTopic(name=f"{name}/", num_partitions=1, replication_factor=1) for name in NAMES]),
        7,
        "topics",
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ),
    (DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in NAMES], timeout_ms=TIMEOUT_MS), 6, "responses", UNKNOWN),
    (
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=3) for name in NAMES], timeout_ms=TIMEOUT_MS),
        3,
        "results",
        UNKNOWN,
    ),
    (
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=TOPIC_RESOURCE, resource_name=name, configs=[AlterableConfig(name="retention.ms", value="1")]
                )
                for name in NAMES
            ]
        ),
        1,
        "responses",
        UNKNOWN,
    ),
]


@pytest.mark.parametrize(("request_", "version", "answers", "code"), CASES, ids=[type(case[0]).__name__ for case in CASES])
def test_each_of_many_is_answered(server: ServerProcess, request_: Any, version: int, answers: str, code: ErrorCode) -> None:
    with WireClient(server.host, server.port) as client:
        response = client.request(request_, version)

    assert [answer.error_code for answer in getattr(response, answers)] == [code] * MANY


def test_a_refused_election_is_told_at_a_version_without_an_error_for_the_whole(server: ServerProcess) -> None:
    """ElectLeaders v0 has an error for each partition alone."""
    too_many = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=list(range(20_000)))])
    with WireClient(server.host, server.port) as client:
        response = client.request(too_many, 0)

    (topic,) = response.replica_election_results
    assert {partition.error_code for partition in topic.partition_result} == {ErrorCode.POLICY_VIOLATION}
    assert len(topic.partition_result) == 20_000


@pytest.mark.parametrize("version", [0, 2])
def test_only_the_metadata_log_s_quorum_is_described(server: ServerProcess, version: int) -> None:
    with WireClient(server.host, server.port) as client:
        response = client.request(
            DescribeQuorumRequest(
                topics=[
                    DescribeQuorumRequestTopicData(topic_name=name, partitions=[DescribeQuorumRequestPartitionData(partition_index=7)])
                    for name in NAMES
                ]
            ),
            version,
        )

    answered = [(topic.topic_name, each.partition_index, each.error_code) for topic in response.topics for each in topic.partitions]
    assert answered == [(name, 7, UNKNOWN) for name in NAMES]
