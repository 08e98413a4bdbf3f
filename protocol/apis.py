"""The one table of APIs: key, versions, where the messages and the handler are, and which kinds of listeners serve each.

The versions are those of Apache Kafka 4.0 (JoinGroup from 0, as since 4.0.1), but those of 4.3 where its brokers and clients use them:
Produce 13, Fetch 18, ListOffsets 11, OffsetCommit 10, OffsetFetch 10, DescribeLogDirs 5, ListConfigResources 1, and the APIs of
transactions.
The declarations may reach further. Message modules are imported at the first use of their API, so that a broker starts without them.
"""

from __future__ import annotations

from enum import Enum
from importlib import import_module
from typing import Any

_NEVER_FLEXIBLE = 32767


class ListenerKind(Enum):
    """Who connects to a listener: clients (and brokers as clients of each other), or the nodes of the metadata quorum."""

    CLIENT = "client"
    CONTROLLER = "controller"


CLIENT = (ListenerKind.CLIENT,)
CONTROLLER = (ListenerKind.CONTROLLER,)
BOTH = CLIENT + CONTROLLER


class Api:
    """One API. Versions are inclusive; `advertised_min_version` may be lower than what is served. `unstable_max_version` is the highest one
    with unstable.api.versions.enable=true.

    `family` and `stem` say where its handler is: broker/handlers/<family>/<stem>.py; its messages are in protocol/messages/<stem>.py.
    Handlers for controller listeners have a folder of their own."""

    __slots__ = (
        "advertised_min_version",
        "family",
        "flexible_since",
        "key",
        "listeners",
        "max_version",
        "min_version",
        "name",
        "stem",
        "unstable_max_version",
    )

    def __init__(
        self,
        key: int,
        name: str,
        family: str,
        stem: str,
        versions: tuple[int, int],
        *,
        flexible: int | None = None,
        advertised_min_version: int | None = None,
        unstable_max_version: int | None = None,
        listeners: tuple[ListenerKind, ...] = CLIENT,
    ) -> None:
        self.key = key
        self.name = name
        self.family = family
        self.stem = stem
        self.listeners = listeners
        self.min_version, self.max_version = versions
        self.flexible_since = _NEVER_FLEXIBLE if flexible is None else flexible
        self.advertised_min_version = self.min_version if advertised_min_version is None else advertised_min_version
        self.unstable_max_version = self.max_version if unstable_max_version is None else unstable_max_version

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name}, v{self.min_version}-v{self.max_version})"

    @property
    def request_class(self) -> type[Any]:
        return self._class(f"{self.name}Request")

    @property
    def response_class(self) -> type[Any]:
        return self._class(f"{self.name}Response")

    def serves(self, version: int, *, is_unstable_enabled: bool = False) -> bool:
        return self.min_version <= version <= self.highest_version(is_unstable_enabled=is_unstable_enabled)

    def highest_version(self, *, is_unstable_enabled: bool) -> int:
        return self.unstable_max_version if is_unstable_enabled else self.max_version

    def request_header_version(self, version: int) -> int:
        return 2 if version >= self.flexible_since else 1

    def response_header_version(self, version: int) -> int:
        # A client reads the answer to an ApiVersions version that the broker does not know: its header must look the same in all.
        return 1 if version >= self.flexible_since and self.key != API_VERSIONS_KEY else 0

    def _class(self, class_name: str) -> type[Any]:
        declared: type[Any] = getattr(import_module(f".messages.{self.stem}", __package__), class_name)
        return declared


API_VERSIONS_KEY = 18
FETCH_KEY = 1

FORWARDABLE_KEYS = frozenset((19, 20, 30, 31, 33, 37, 38, 39, 40, 43, 44, 45, 46, 49, 51, 55, 57, 64, 67, 80, 81))
"""What a broker forwards to the active controller in an Envelope (ApiKeys.forwardable)."""

DECLARED: dict[int, Api] = {
    declared.key: declared
    for declared in (
        # librdkafka before 2.8 sends uncompressed, silently, to a broker that does not advertise Produce 0 (KAFKA-18659).
        Api(0, "Produce", "produce_fetch", "produce", (3, 13), flexible=9, advertised_min_version=0),
        Api(1, "Fetch", "produce_fetch", "fetch", (4, 18), flexible=12, listeners=BOTH),
        Api(2, "ListOffsets", "produce_fetch", "list_offsets", (1, 11), flexible=6),
        Api(3, "Metadata", "topics", "metadata", (0, 13), flexible=9),
        Api(8, "OffsetCommit", "groups", "offset_commit", (2, 10), flexible=8),
        Api(9, "OffsetFetch", "groups", "offset_fetch", (1, 10), flexible=6),
        Api(10, "FindCoordinator", "groups", "find_coordinator", (0, 6), flexible=3),
        Api(11, "JoinGroup", "groups", "join_group", (0, 9), flexible=6),
        Api(12, "Heartbeat", "groups", "heartbeat", (0, 4), flexible=4),
        Api(13, "LeaveGroup", "groups", "leave_group", (0, 5), flexible=4),
        Api(14, "SyncGroup", "groups", "sync_group", (0, 5), flexible=4),
        Api(15, "DescribeGroups", "groups", "describe_groups", (0, 6), flexible=5),
        Api(16, "ListGroups", "groups", "list_groups", (0, 5), flexible=3),
        Api(17, "SaslHandshake", "cluster", "sasl_handshake", (0, 1), listeners=BOTH),
        Api(18, "ApiVersions", "cluster", "api_versions", (0, 4), flexible=3, listeners=BOTH),
        Api(19, "CreateTopics", "topics", "create_topics", (2, 7), flexible=5, listeners=BOTH),
        Api(20, "DeleteTopics", "topics", "delete_topics", (1, 6), flexible=4, listeners=BOTH),
        Api(21, "DeleteRecords", "produce_fetch", "delete_records", (0, 2), flexible=2),
        Api(22, "InitProducerId", "produce_fetch", "init_producer_id", (0, 5), flexible=2, unstable_max_version=6),
        Api(23, "OffsetForLeaderEpoch", "produce_fetch", "offset_for_leader_epoch", (2, 4), flexible=4),
        Api(24, "AddPartitionsToTxn", "transactions", "add_partitions_to_txn", (0, 5), flexible=3),
        Api(25, "AddOffsetsToTxn", "transactions", "add_offsets_to_txn", (0, 4), flexible=3),
        Api(26, "EndTxn", "transactions", "end_txn", (0, 5), flexible=3),
        Api(27, "WriteTxnMarkers", "transactions", "write_txn_markers", (1, 2), flexible=1),
        Api(28, "TxnOffsetCommit", "transactions", "txn_offset_commit", (0, 5), flexible=3),
        Api(29, "DescribeAcls", "cluster", "describe_acls", (1, 3), flexible=2, listeners=BOTH),
        Api(30, "CreateAcls", "cluster", "create_acls", (1, 3), flexible=2, listeners=BOTH),
        Api(31, "DeleteAcls", "cluster", "delete_acls", (1, 3), flexible=2, listeners=BOTH),
        Api(32, "DescribeConfigs", "configs", "describe_configs", (1, 4), flexible=4, listeners=BOTH),
        Api(33, "AlterConfigs", "configs", "alter_configs", (0, 2), flexible=2, listeners=BOTH),
        Api(34, "AlterReplicaLogDirs", "cluster", "alter_replica_log_dirs", (1, 2), flexible=2),
        Api(35, "DescribeLogDirs", "cluster", "describe_log_dirs", (1, 5), flexible=2),
        Api(36, "SaslAuthenticate", "cluster", "sasl_authenticate", (0, 2), flexible=2, listeners=BOTH),
        Api(37, "CreatePartitions", "topics", "create_partitions", (0, 3), flexible=2, listeners=BOTH),
        Api(38, "CreateDelegationToken", "security", "create_delegation_token", (1, 3), flexible=2, listeners=BOTH),
        Api(39, "RenewDelegationToken", "security", "renew_delegation_token", (1, 2), flexible=2, listeners=BOTH),
        Api(40, "ExpireDelegationToken", "security", "expire_delegation_token", (1, 2), flexible=2, listeners=BOTH),
        Api(41, "DescribeDelegationToken", "security", "describe_delegation_token", (1, 3), flexible=2),
        Api(42, "DeleteGroups", "groups", "delete_groups", (0, 2), flexible=2),
        Api(43, "ElectLeaders", "cluster", "elect_leaders", (0, 2), flexible=2, listeners=BOTH),
        Api(44, "IncrementalAlterConfigs", "configs", "incremental_alter_configs", (0, 1), flexible=1, listeners=BOTH),
        Api(45, "AlterPartitionReassignments", "cluster", "alter_partition_reassignments", (0, 1), flexible=0, listeners=BOTH),
        Api(46, "ListPartitionReassignments", "cluster", "list_partition_reassignments", (0, 0), flexible=0, listeners=BOTH),
        Api(47, "OffsetDelete", "groups", "offset_delete", (0, 0)),
        Api(48, "DescribeClientQuotas", "configs", "describe_client_quotas", (0, 1), flexible=1),
        Api(49, "AlterClientQuotas", "configs", "alter_client_quotas", (0, 1), flexible=1, listeners=BOTH),
        Api(50, "DescribeUserScramCredentials", "security", "describe_user_scram_credentials", (0, 0), flexible=0),
        Api(51, "AlterUserScramCredentials", "security", "alter_user_scram_credentials", (0, 0), flexible=0, listeners=BOTH),
        Api(52, "Vote", "controller", "vote", (0, 2), flexible=0, listeners=CONTROLLER),
        Api(53, "BeginQuorumEpoch", "controller", "begin_quorum_epoch", (0, 1), flexible=1, listeners=CONTROLLER),
        Api(54, "EndQuorumEpoch", "controller", "end_quorum_epoch", (0, 1), flexible=1, listeners=CONTROLLER),
        Api(55, "DescribeQuorum", "cluster", "describe_quorum", (0, 2), flexible=0, listeners=BOTH),
        Api(56, "AlterPartition", "controller", "alter_partition", (2, 3), flexible=0, listeners=CONTROLLER),
        Api(57, "UpdateFeatures", "cluster", "update_features", (0, 2), flexible=0, listeners=BOTH),
        Api(58, "Envelope", "controller", "envelope", (0, 0), flexible=0, listeners=CONTROLLER),
        Api(59, "FetchSnapshot", "controller", "fetch_snapshot", (0, 1), flexible=0, listeners=CONTROLLER),
        Api(60, "DescribeCluster", "cluster", "describe_cluster", (0, 2), flexible=0, listeners=BOTH),
        Api(61, "DescribeProducers", "produce_fetch", "describe_producers", (0, 0), flexible=0),
        Api(62, "BrokerRegistration", "controller", "broker_registration", (0, 4), flexible=0, listeners=CONTROLLER),
        Api(63, "BrokerHeartbeat", "controller", "broker_heartbeat", (0, 2), flexible=0, listeners=CONTROLLER),
        Api(64, "UnregisterBroker", "cluster", "unregister_broker", (0, 0), flexible=0, listeners=BOTH),
        Api(65, "DescribeTransactions", "transactions", "describe_transactions", (0, 0), flexible=0),
        Api(66, "ListTransactions", "transactions", "list_transactions", (0, 2), flexible=0),
        Api(67, "AllocateProducerIds", "controller", "allocate_producer_ids", (0, 0), flexible=0, listeners=CONTROLLER),
        Api(68, "ConsumerGroupHeartbeat", "groups", "consumer_group_heartbeat", (0, 1), flexible=0),
        Api(69, "ConsumerGroupDescribe", "groups", "consumer_group_describe", (0, 1), flexible=0),
        Api(70, "ControllerRegistration", "controller", "controller_registration", (0, 0), flexible=0, listeners=CONTROLLER),
        Api(71, "GetTelemetrySubscriptions", "cluster", "get_telemetry_subscriptions", (0, 0), flexible=0),
        Api(72, "PushTelemetry", "cluster", "push_telemetry", (0, 0), flexible=0),
        Api(73, "AssignReplicasToDirs", "controller", "assign_replicas_to_dirs", (0, 0), flexible=0, listeners=CONTROLLER),
        Api(74, "ListConfigResources", "configs", "list_config_resources", (0, 1), flexible=0),
        Api(75, "DescribeTopicPartitions", "topics", "describe_topic_partitions", (0, 0), flexible=0),
        Api(80, "AddRaftVoter", "cluster", "add_raft_voter", (0, 1), flexible=0, listeners=BOTH),
        Api(81, "RemoveRaftVoter", "cluster", "remove_raft_voter", (0, 0), flexible=0, listeners=BOTH),
        Api(82, "UpdateRaftVoter", "controller", "update_raft_voter", (0, 0), flexible=0, listeners=CONTROLLER),
    )
}


def apis_of(kind: ListenerKind) -> dict[int, Api]:
    """What listeners of this kind serve, by key."""
    return {key: api for key, api in DECLARED.items() if kind in api.listeners}


APIS = apis_of(ListenerKind.CLIENT)
"""What clients are served."""
