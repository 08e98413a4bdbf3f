"""Odd but legal requests about topics, configs and the cluster. See odd_requests.py."""

from __future__ import annotations

from itertools import count
from typing import Any

from protocol.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.peers.odd_request import UNKNOWN_ID, Row, topic


def describe(*resources: tuple[int, str], keys: list[str] | None = None, **fields: Any) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys) for kind, name in resources],
        **fields,
    )


def alter(*resources: tuple[int, str, list[tuple[str, int, str | None]]], **fields: Any) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in configs],
            )
            for kind, name, configs in resources
        ],
        **fields,
    )


SOME_KEYS = ["retention.ms", "segment.bytes"]
CONFIGS: list[Row] = [
    ("describe nothing", describe(), 4),
    ("describe a topic twice", describe((2, "one"), (2, "one"), keys=SOME_KEYS), 4),
    ("describe topics in turn", describe((2, "one"), (2, "three"), (2, "one"), keys=SOME_KEYS), 4),
    ("describe an unknown topic twice", describe((2, "missing"), (2, "missing")), 4),
    ("describe a broker twice", describe((4, "1"), (4, "1"), keys=["node.id"]), 4),
    ("describe with a key twice", describe((2, "one"), keys=["retention.ms", "retention.ms"]), 4),
    ("describe with unknown keys", describe((2, "one"), keys=["no.such", ""]), 4),
    ("describe with no keys", describe((2, "one"), keys=[]), 4),
    ("describe the topic with internal.segment.bytes", describe((2, "hidden"), include_synonyms=True), 4),
    ("describe a bad topic name", describe((2, "a/b"), (2, "")), 4),
    ("describe resource type 0", describe((0, "one")), 4),
    ("describe resource type 1", describe((2, "one"), (1, "one"), keys=SOME_KEYS), 4),
    ("describe resource type -1", describe((-1, "one")), 4),
    ("describe resource type 99", describe((99, "one")), 4),
    ("describe broker -1", describe((4, "-1")), 4),
    ("describe broker x", describe((4, "x")), 4),
    ("describe broker 01", describe((4, "01"), keys=["node.id"]), 4),
    ("alter nothing", alter(), 1),
    ("alter a topic without configs", alter((2, "one", [])), 1),
    ("alter an unknown topic without configs", alter((2, "missing", [])), 1),
    ("alter an unknown topic", alter((2, "missing", [("retention.ms", 0, "5")])), 1),
    ("alter a topic twice", alter((2, "one", [("retention.ms", 0, "5")]), (2, "one", [("segment.ms", 0, "5")])), 1),
    ("alter a key twice", alter((2, "one", [("retention.ms", 0, "5"), ("retention.ms", 0, "6")])), 1),
    ("alter by operation 4", alter((2, "one", [("retention.ms", 4, "5")])), 1),
    ("alter by operation -1", alter((2, "one", [("retention.ms", -1, "5")])), 1),
    ("append to what is no list", alter((2, "one", [("retention.ms", 2, "5")])), 1),
    ("set null", alter((2, "one", [("retention.ms", 0, None)])), 1),
    ("delete with a value", alter((2, "one", [("retention.ms", 1, "5")])), 1),
    ("delete an unknown key", alter((2, "one", [("no.such", 1, None)])), 1),
    ("set an unknown key", alter((2, "one", [("no.such", 0, "1")])), 1),
    ("alter resource type 0", alter((0, "one", [("a", 0, "b")])), 1),
    ("alter resource type 99", alter((99, "one", [("a", 0, "b")])), 1),
    ("alter topic ''", alter((2, "", [("retention.ms", 0, "5")])), 1),
    ("alter a bad topic name", alter((2, "a/b", [("retention.ms", 0, "5")])), 1),
    ("alter, validate only", alter((2, "one", [("retention.ms", 0, "5")]), validate_only=True), 1),
]


_NUMBERS = count()


def create(*topics: CreatableTopic, **fields: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), **fields)


def fresh(**fields: Any) -> CreatableTopic:
    return topic(f"fresh{next(_NUMBERS)}", **fields)


def assigned(*assignments: tuple[int, list[int]], **fields: Any) -> CreatableTopic:
    made = CreatableTopic(name=f"fresh{next(_NUMBERS)}", num_partitions=-1, replication_factor=-1, **fields)
    made.assignments = [CreatableReplicaAssignment(partition_index=index, broker_ids=brokers) for index, brokers in assignments]
    return made


def more(name: str, total: int, assignments: list[list[int]] | None = None, **fields: Any) -> CreatePartitionsRequest:
    made = None if assignments is None else [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments]
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=total, assignments=made)], timeout_ms=10_000, **fields)


TOPICS: list[Row] = [
    ("create nothing", create(), 7),
    ("create, timeout 0", create(fresh(), timeout_ms=0), 7),
    ("create, timeout -1", create(fresh(), timeout_ms=-1), 7),
    ("create, timeout -1 v2", create(fresh(), timeout_ms=-1), 2),
    ("create what is there, timeout -1", create(topic("one"), timeout_ms=-1), 7),
    ("validate only, timeout 0", create(fresh(), timeout_ms=0, validate_only=True), 7),
    (
        "what was created in no time",
        MetadataRequest(topics=[MetadataRequestTopic(name=f"fresh{number}") for number in range(4)], allow_auto_topic_creation=False),
        9,
    ),
    ("create a bad name, timeout 0", create(topic("a/b"), topic("twice"), topic("twice"), timeout_ms=0), 7),
    ("create 0 partitions", create(fresh(partitions=0)), 7),
    ("create -2 partitions", create(fresh(partitions=-2)), 7),
    ("create 0 replicas", create(fresh(replicas=0)), 7),
    ("create -2 replicas", create(fresh(replicas=-2)), 7),
    ("create 5 replicas", create(fresh(replicas=5)), 7),
    ("create defaults v2", create(fresh(partitions=-1, replicas=-1)), 2),
    ("create a topic twice", create(topic("twice"), topic("twice")), 7),
    ("create bad names", create(topic(""), topic("."), topic("a/b"), topic("n" * 250)), 7),
    (
        "create a config twice",
        create(
            CreatableTopic(
                name="confused",
                num_partitions=1,
                replication_factor=1,
                configs=[
                    CreatableTopicConfig(name="retention.ms", value="1000"),
                    CreatableTopicConfig(name="retention.ms", value="2000"),
                ],
            )
        ),
        7,
    ),
    ("create with a null config", create(fresh(retention_ms=None)), 7),
    ("create with assignment of nobody", create(assigned((0, []))), 7),
    ("create with a gap in the assignment", create(assigned((1, [1]))), 7),
    ("create with a negative partition", create(assigned((-1, [1]))), 7),
    ("create with a broker twice", create(assigned((0, [1, 1]))), 7),
    ("create with an unknown broker", create(assigned((0, [-1]))), 7),
    ("create with internal.segment.bytes", create(fresh(internal_segment_bytes="100000", segment_bytes="2000000")), 7),
    ("create the metadata topic", create(topic("__cluster_metadata")), 7),
    ("add no partitions", CreatePartitionsRequest(topics=[], timeout_ms=1000), 3),
    ("add partitions, timeout 0", CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="three", count=4, assignments=None)]), 3),
    (
        "add partitions, timeout -1",
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="three", count=5, assignments=None)], timeout_ms=-1),
        3,
    ),
    ("total 0", more("one", 0), 3),
    ("total -1", more("one", -1), 3),
    ("total as it is", more("one", 1), 3),
    ("total of an unknown topic", more("missing", 3), 3),
    ("empty assignments", more("one", 2, []), 3),
    ("assignment of nobody", more("one", 2, [[]]), 3),
    ("assignment to an unknown broker", more("one", 2, [[9]]), 3),
    ("assignment to two", more("one", 2, [[1, 1]]), 3),
    ("validate only", more("one", 2, validate_only=True), 3),
    ("a topic twice", CreatePartitionsRequest(topics=more("one", 2).topics * 2, timeout_ms=1000), 3),
    ("delete nothing", DeleteTopicsRequest(timeout_ms=1000), 6),
    ("delete unknown", DeleteTopicsRequest(topic_names=["missing", ""], timeout_ms=1000), 5),
    ("delete twice", DeleteTopicsRequest(topic_names=["one", "one"], timeout_ms=1000), 5),
    ("delete, neither name nor id", DeleteTopicsRequest(topics=[DeleteTopicState()], timeout_ms=1000), 6),
    ("delete, name and id", DeleteTopicsRequest(topics=[DeleteTopicState(name="one", topic_id=UNKNOWN_ID)], timeout_ms=1000), 6),
    ("delete unknown, timeout 0", DeleteTopicsRequest(topic_names=["missing", "one", "one"], timeout_ms=0), 5),
    ("delete unknown ids", DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=UNKNOWN_ID)] * 2, timeout_ms=1000), 6),
    ("delete an unknown id", DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=UNKNOWN_ID)], timeout_ms=1000), 6),
    ("delete, timeout 0", DeleteTopicsRequest(topic_names=["compacted"], timeout_ms=0), 5),
    ("delete, timeout -1", DeleteTopicsRequest(topic_names=["small"], timeout_ms=-1), 5),
]


def describe_partitions(*names: str, limit: int = 2000, cursor: Cursor | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor)


def log_dirs(*topics: tuple[str, list[int]]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics])


LOG_DIRS: list[Row] = [
    *((f"a partition v{version}", log_dirs(("one", [0])), version) for version in range(1, 5)),
    ("a partition twice", log_dirs(("one", [0, 0]), ("one", [0])), 4),
    ("unknown partitions", log_dirs(("one", [1, -1]), ("missing", [0]), ("", [0])), 4),
    ("the metadata log", log_dirs(("__cluster_metadata", [0])), 4),
    ("no partitions", log_dirs(("one", [])), 4),
    ("nothing", log_dirs(), 4),
]


CLUSTER: list[Row] = [
    *((f"endpoint type {kind}", DescribeClusterRequest(endpoint_type=kind), 1) for kind in (0, 1, 2, 3, -1)),
    ("fenced brokers", DescribeClusterRequest(include_fenced_brokers=True, include_cluster_authorized_operations=True), 2),
    ("a topic twice", describe_partitions("one", "one"), 0),
    ("unknown names", describe_partitions("missing", "gone"), 0),
    ("a bad name", describe_partitions("a/b", "one"), 0),
    ("an empty name", describe_partitions("", "one"), 0),
    ("limit 0", describe_partitions("three", limit=0), 0),
    ("limit -1", describe_partitions("three", limit=-1), 0),
    ("limit 2", describe_partitions("one", "three", limit=2), 0),
    ("limit met", describe_partitions("one", "three", limit=1), 0),
    ("cursor", describe_partitions("one", "three", cursor=Cursor(topic_name="three", partition_index=1)), 0),
    ("cursor beyond", describe_partitions("one", "three", cursor=Cursor(topic_name="three", partition_index=99)), 0),
    ("negative cursor", describe_partitions("one", "three", cursor=Cursor(topic_name="three", partition_index=-1)), 0),
    ("cursor at an unknown topic", describe_partitions("one", "three", cursor=Cursor(topic_name="nope", partition_index=0)), 0),
    ("cursor alone", describe_partitions(cursor=Cursor(topic_name="three", partition_index=1)), 0),
]
