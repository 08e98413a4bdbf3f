"""Odd but legal requests about topics, configs and the cluster. See odd_requests.py."""

from __future__ import annotations

from itertools import count
from typing import Any

from protocol.messages.alter_configs import AlterableConfig as ReplacedConfig
from protocol.messages.alter_configs import AlterConfigsRequest
from protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic
from protocol.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_cluster import DescribeClusterRequest
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
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
    *(
        (
            f"{('append', 'subtract')[operation - 2]} {value!r} of a list",
            alter((2, "one", [("cleanup.policy", operation, value)]), validate_only=True),
            1,
        )
        for value in (",", ",,", "", "compact,", ",compact", "compact,,delete")
        for operation in (2, 3)
    ),
    ("append nothing to an unknown topic's list", alter((2, "missing", [("cleanup.policy", 2, ",")])), 1),
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


def replace(*resources: tuple[int, str, list[tuple[str, str | None]]], **fields: Any) -> AlterConfigsRequest:
    return AlterConfigsRequest(
        resources=[
            ReplacedResource(
                resource_type=kind, resource_name=name, configs=[ReplacedConfig(name=key, value=value) for key, value in configs]
            )
            for kind, name, configs in resources
        ],
        **fields,
    )


def _altering(kind: int, name: str, *changes: tuple[str, int, str | None]) -> IncrementalAlterConfigsRequest:
    return alter((kind, name, list(changes)))


TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SESSION, INTERVAL = "consumer.session.timeout.ms", "interval.ms"

OTHER_CONFIGS: list[Row] = [
    *((f"replace a topic's v{version}", replace((TOPIC, "three", [("retention.ms", "5000")])), version) for version in (0, 1, 2)),
    ("what was replaced", describe((TOPIC, "three"), keys=SOME_KEYS, include_synonyms=True), 4),
    ("replace with nothing", replace((TOPIC, "three", [])), 2),
    ("what was replaced with nothing", describe((TOPIC, "three"), keys=SOME_KEYS), 4),
    ("replace, validate only", replace((TOPIC, "three", [("retention.ms", "7")]), validate_only=True), 2),
    ("replace a key twice", replace((TOPIC, "three", [("retention.ms", "5"), ("retention.ms", "6")])), 2),
    ("replace by null", replace((TOPIC, "three", [("retention.ms", None)])), 2),
    ("replace by an unknown key", replace((TOPIC, "three", [("no.such", "1")])), 2),
    ("replace an unknown topic's", replace((TOPIC, "missing", [])), 2),
    ("replace topic ''", replace((TOPIC, "", [("retention.ms", "1")])), 2),
    ("replace a broker's", replace((BROKER, "1", [("log.cleaner.backoff.ms", "20000")])), 2),
    ("what was replaced of a broker", describe((BROKER, "1"), keys=["log.cleaner.backoff.ms"], include_synonyms=True), 4),
    ("replace a broker's with nothing", replace((BROKER, "1", [])), 2),
    ("replace what is read-only", replace((BROKER, "1", [("node.id", "2")])), 2),
    ("replace another broker's", replace((BROKER, "7", [("log.cleaner.backoff.ms", "2")])), 2),
    *((f"replace a resource of type {kind}", replace((kind, "1", [("root", "INFO")])), 2) for kind in (0, 1, LOGGER, 99, -1)),
    ("replace a group's", replace((GROUP, "g", [(SESSION, "48000")])), 2),
    ("replace a subscription's", replace((METRICS, "m", [(INTERVAL, "200")])), 2),
    ("replace nothing", replace(), 2),
    *(
        (f"a group's {key} {operation} {value}", _altering(GROUP, "g", (key, operation, value)), 1)
        for key, operation, value in (
            (SESSION, 0, "50000"), (SESSION, 0, "5"), (SESSION, 0, "5000000"), (SESSION, 0, "0"), (SESSION, 2, "5"), (SESSION, 0, None),
            ("no.such", 0, "x"), ("no.such", 1, None), ("share.isolation.level", 0, "read"), ("share.auto.offset.reset", 0, "foo"),
            ("share.auto.offset.reset", 0, "by_duration:PT1H"), ("share.auto.offset.reset", 0, "by_duration:-PT1H"),
            ("share.renew.acknowledge.enable", 0, "x"), ("consumer.heartbeat.interval.ms", 0, "15000"),
            ("consumer.heartbeat.interval.ms", 0, "15001"), ("streams.num.standby.replicas", 0, "3"),
            ("share.delivery.count.limit", 0, "1"), ("share.partition.max.record.locks", 0, "1"),
            ("share.assignment.interval.ms", 0, "900000"), ("consumer.assignment.interval.ms", 0, "-1"),
        )
    ),
    ("a group without a name", _altering(GROUP, "", (SESSION, 0, "50000")), 1),
    ("a group's configs", describe((GROUP, "g"), include_synonyms=True), 4),
    ("another group's configs", describe((GROUP, "unheard-of"), include_synonyms=True), 4),
    ("describe group ''", describe((GROUP, "")), 4),
    *(
        (f"a subscription's {key} {operation} {value}", _altering(METRICS, "m", (key, operation, value)), 1)
        for key, operation, value in (
            (INTERVAL, 0, "100"), (INTERVAL, 0, "99"), (INTERVAL, 0, "3600001"), (INTERVAL, 0, None), ("metrics", 0, "org.apache.,x"),
            ("metrics", 2, "y"), ("metrics", 0, "y,,z"), ("metrics", 0, ""), ("no.such", 0, "y"), ("match", 0, "client_id"),
            ("match", 0, "a=b"), ("match", 0, "client_id=["), ("match", 0, "client_id=a=b"), ("match", 0, "client_id= "),
            ("match", 0, "client_id=a.*, client_software_version = 1.*"),
        )
    ),
    ("a subscription without a name", _altering(METRICS, "", (INTERVAL, 0, "100")), 1),
    ("a subscription's configs", describe((METRICS, "m"), include_synonyms=True, include_documentation=True), 4),
    ("another subscription's configs", describe((METRICS, "unheard-of"), include_synonyms=True), 4),
    ("describe subscription ''", describe((METRICS, "")), 4),
    *(
        (f"a logger's level {operation} {value}", _altering(LOGGER, "1", ("root", operation, value)), 1)
        for operation, value in ((0, "LOUD"), (0, "info"), (1, ""), (2, "INFO"), (3, "INFO"), (0, None))
    ),
    ("an unknown logger", _altering(LOGGER, "1", ("nope", 0, "INFO")), 1),
    *((f"loggers of {name!r}", _altering(LOGGER, name, ("root", 0, "INFO")), 1) for name in ("", "2", "x")),
    *((f"describe loggers of {name!r}", describe((LOGGER, name)), 4) for name in ("", "2", "x")),
    *(
        (f"broker {broker!r} {key} {value}", alter((BROKER, broker, [(key, 0, value)]), validate_only=True), 1)
        for broker in ("1", "")
        for key, value in (
            ("log.cleaner.backoff.ms", "1"), ("log.cleaner.dedupe.buffer.size", "1"), ("log.cleaner.io.max.bytes.per.second", "5.5"),
            ("max.connections", "500"), ("max.connections.per.ip", "0"), ("ssl.keystore.location", "x"), ("no.such", "x"),
            ("node.id", "3"), ("log.retention.hours", "5"), ("unclean.leader.election.enable", "x"), ("producer.id.expiration.ms", "5"),
            ("num.network.threads", "2"),
            ("listener.name.plaintext.num.network.threads", "3"),
            ("num.network.threads", "100"), ("num.network.threads", "1"), ("max.connection.creation.rate", "0"),
            ("listener.name.plaintext.ssl.keystore.location", "x"), ("advertised.listeners", "x"),
        )
    ),
    *(
        (f"broker {broker!r} {key} {operation} {value}", alter((BROKER, broker, [(key, operation, value)]), validate_only=True), 1)
        for broker in ("1", "")
        for key, value in (
            ("node.id", "3"), ("log.dirs", "x"), ("auto.create.topics.enable", "false"), ("metric.reporters", "no.Such"),
            ("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter"), ("principal.builder.class", "no.Such"),
            ("ssl.engine.factory.class", "no.Such"), ("replica.selector.class", "no.Such"), ("connections.max.reauth.ms", "x"),
            ("listener.name.plaintext.ssl.engine.factory.class", "no.Such"), ("listener.name.plaintext.no.such", "x"),
            ("ssl.protocol", "x"), ("ssl.principal.mapping.rules", "x"), ("listener.security.protocol.map", "x"),
            ("num.io.threads", "100"), ("num.io.threads", "9"), ("background.threads", "100"), ("num.recovery.threads.per.data.dir", "5"),
        )
        for operation in range(4)
        if operation or key != "listener.security.protocol.map"
    ),
    ("append to no list of a broker", _altering(BROKER, "", ("num.io.threads", 2, "x")), 1),
    ("append to an unknown list of a broker", _altering(BROKER, "", ("no.list", 2, "x")), 1),
    *(
        (f"list types {types} v{version}", ListConfigResourcesRequest(resource_types=types), version)
        for version, types in ((0, []), (1, [METRICS, GROUP]), (1, [BROKER]), (1, [LOGGER]), (1, [99]), (1, [0]))
    ),
]  # fmt: skip


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
    ("create with a config in capitals", create(fresh(unclean_leader_election_enable="TRUE", cleanup_policy=" delete , compact")), 7),
    ("create with an empty policy among others", create(fresh(cleanup_policy="delete,,compact")), 7),
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


def reassign(name: str, index: int, replicas: list[int] | None, **fields: Any) -> AlterPartitionReassignmentsRequest:
    partitions = [ReassignablePartition(partition_index=index, replicas=replicas)]
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=partitions)], **fields)


REASSIGNMENTS: list[Row] = [
    (f"{name}-{index} to {replicas}", reassign(name, index, replicas), 1)
    for name, index in (("three", 0), ("three", 9), ("three", -1), ("missing", 0), ("", 0))
    for replicas in ([], [1], [9], [-1], [1, 1], [1, 9], None)
]


REASSIGNMENTS += [(f"no topics v{version}", AlterPartitionReassignmentsRequest(), version) for version in (0, 1)]


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


def features(*updates: tuple[str, int]) -> UpdateFeaturesRequest:
    keys = [FeatureUpdateKey(feature=name, max_version_level=level) for name, level in updates]
    return UpdateFeaturesRequest(feature_updates=keys, validate_only=True)


CLUSTER: list[Row] = [
    ("validate a feature twice", features(("group.version", 1), ("group.version", 1)), 1),
    *((f"validate a feature as it is v{version}", features(("group.version", 1)), version) for version in (1, 2)),
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
