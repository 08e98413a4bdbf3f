"""CreateTopics (key 19).

Version notes: 4 -1 asks for the broker's default partitions or replication factor (KIP-464); 5 flexible, the created topic's settings in
the response (KIP-525); 7 topic ids.
"""

from __future__ import annotations

from ..schema import Array, Bool, Int8, Int16, Int32, String, Uuid, api, message, since, struct
from ..uuids import ZERO_UUID


@struct
class CreatableReplicaAssignment:
    partition_index: Int32 = 0
    broker_ids: Array[Int32] = []


@struct
class CreatableTopicConfig:
    name: String = ""
    value: String | None = ""


@struct
class CreatableTopic:
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: Array[CreatableReplicaAssignment] = []
    configs: Array[CreatableTopicConfig] = []


@api(key=19, versions=(2, 7), flexible=5)
class CreateTopicsRequest:
    """Asks for topics, each with a number of replicas or an assignment of its own."""

    topics: Array[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: Bool = since(1, default=False)


@struct
class CreatableTopicConfigs:
    name: String = since(5, default="")
    value: String | None = since(5, default="")
    read_only: Bool = since(5, default=False)
    config_source: Int8 = since(5, default=-1, ignorable=True)
    is_sensitive: Bool = since(5, default=False)


@struct
class CreatableTopicResult:
    name: String = ""
    topic_id: Uuid = since(7, default=ZERO_UUID, ignorable=True)
    error_code: Int16 = 0
    error_message: String | None = since(1, default="", ignorable=True)
    topic_config_error_code: Int16 = since(5, tag=0, default=0, ignorable=True)
    num_partitions: Int32 = since(5, default=-1, ignorable=True)
    replication_factor: Int16 = since(5, default=-1, ignorable=True)
    configs: Array[CreatableTopicConfigs] | None = since(5, default=[], ignorable=True)


@message(versions=(2, 7), flexible=5)
class CreateTopicsResponse:
    """Tells what came of each topic."""

    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: Array[CreatableTopicResult] = []
