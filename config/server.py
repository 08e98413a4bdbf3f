"""The broker's settings: `ServerConfig`, one field per Kafka broker property that means something here, and the table of all of them.

Fields have Kafka's names in snake_case and Kafka's defaults, but for the three that config/server_table.py names. A few hold what the
text means rather than the text: listeners are Endpoints, `log_dirs` falls back to log.dir, `node_id` to broker.id. `value_of` answers
for every property, with or without a field. Built by config/server_rules.py from text; nothing changes it afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from config.endpoints import Endpoint, Voter, parse_host_and_port
from config.properties import Property, PropertyTable, Value
from config.server_table import BARNABAS_TABLE, DYNAMIC_TABLE, KAFKA_TABLE
from config.topic import LogConfig

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

AUTHORIZER_PROPERTIES = {"super.users": "super_users", "allow.everyone.if.no.acl.found": "allow_everyone_if_no_acl_found"}
"""What Kafka gives to its authorizer as text, without a declaration: the fields by the properties' names."""

# Broker properties that stand in for each other, the one that wins first (Kafka's DynamicBrokerConfig.brokerConfigSynonyms).
_SYNONYMS: dict[str, tuple[str, ...]] = {}
for _group in (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
):
    _SYNONYMS |= dict.fromkeys(_group, _group)

SERVER_PROPERTIES: Mapping[str, Property] = PropertyTable(KAFKA_TABLE + BARNABAS_TABLE, _SYNONYMS)
"""Every broker property by name. `synonyms` is empty for a property that only stands for itself."""

DYNAMIC_ONLY_PROPERTIES: Mapping[str, Property] = PropertyTable(DYNAMIC_TABLE, {})
"""Broker properties that exist as dynamic configs alone. They are no fields of ServerConfig."""

_EMPTY: Mapping[str, Any] = MappingProxyType({})
_DEFAULT_PROTOCOLS: Mapping[str, str] = MappingProxyType(
    {"SASL_SSL": "SASL_SSL", "PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "SASL_PLAINTEXT": "SASL_PLAINTEXT"}
)


class ServerConfig:
    """A broker's settings, read-only. `ServerConfig()` has Kafka's defaults; keyword arguments replace them.

    Not a dataclass: generating one of this size takes 4 ms, a tenth of a start. The defaults are class attributes instead.
    `log.retention.*` and the like are read through `topic_defaults`.
    """

    topic_defaults: LogConfig = LogConfig()
    texts: Mapping[str, str] = _EMPTY
    """What the file, the environment and the command line set, as written; also what is no property."""
    unknown_keys: tuple[str, ...] = ()

    # The node
    node_id: int = 1
    process_roles: tuple[str, ...] = ("broker", "controller")
    broker_rack: str | None = None
    log_dirs: tuple[str, ...] = ("/tmp/kafka-logs",)
    cordoned_log_dirs: tuple[str, ...] = ()
    metadata_log_dir: str = "/tmp/kafka-logs"
    background_threads: int = 10
    num_io_threads: int = 8
    num_network_threads: int = 3
    num_recovery_threads_per_data_dir: int = 2
    num_replica_alter_log_dirs_threads: int | None = None
    request_timeout_ms: int = 30_000
    delete_topic_enable: bool = True
    controlled_shutdown_enable: bool = True
    authorizer_class_name: str = ""
    super_users: str = ""
    allow_everyone_if_no_acl_found: str = ""
    """This and `super_users` are the authorizer's own properties, as written (broker/security/authorizer/settings.py)."""

    # Listeners and connections
    listeners: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    advertised_listeners: tuple[Endpoint, ...] = (Endpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
    inter_broker_listener_name: str = "PLAINTEXT"
    controller_listener_names: tuple[str, ...] = ()
    early_start_listeners: tuple[str, ...] | None = None
    listener_security_protocol_map: Mapping[str, str] = _DEFAULT_PROTOCOLS
    socket_connection_setup_timeout_max_ms: int = 30_000
    socket_connection_setup_timeout_ms: int = 10_000
    socket_listen_backlog_size: int = 1024
    socket_receive_buffer_bytes: int = -1
    socket_request_max_bytes: int = 104_857_600
    socket_send_buffer_bytes: int = 262_144
    delegation_token_secret_key: str | None = None
    delegation_token_max_lifetime_ms: int = 7 * 86_400_000
    delegation_token_expiry_time_ms: int = 86_400_000
    delegation_token_expiry_check_interval_ms: int = 3_600_000
    connection_failed_authentication_delay_ms: int = 100
    connections_max_idle_ms: int = 600_000
    connections_max_reauth_ms: int = 0
    max_connection_creation_rate: int = INT_MAX
    max_connections: int = INT_MAX
    max_connections_per_ip: int = INT_MAX
    max_connections_per_ip_overrides: Mapping[str, int] = _EMPTY
    queued_max_request_bytes: int = -1
    queued_max_requests: int = 500

    # Requests
    fetch_max_bytes: int = 57_671_680
    fetch_purgatory_purge_interval_requests: int = 1000
    max_incremental_fetch_session_cache_slots: int = 1000
    max_request_partition_size_limit: int = 2000
    producer_purgatory_purge_interval_requests: int = 1000
    delete_records_purgatory_purge_interval_requests: int = 1

    # Topics and logs
    auto_create_topics_enable: bool = True
    num_partitions: int = 1
    default_replication_factor: int = 1
    message_max_bytes: int = 1_048_588
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 134_217_728
    log_cleaner_delete_retention_ms: int = 86_400_000
    log_cleaner_enable: bool = True
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_buffer_size: int = 524_288
    log_cleaner_io_max_bytes_per_second: float = DOUBLE_MAX
    log_cleaner_max_compaction_lag_ms: int = LONG_MAX
    log_cleaner_min_cleanable_ratio: float = 0.5
    log_cleaner_min_compaction_lag_ms: int = 0
    log_cleaner_threads: int = 1
    log_cleanup_policy: tuple[str, ...] = ("delete",)
    log_dir_failure_timeout_ms: int = 30_000
    log_flush_interval_messages: int = LONG_MAX
    log_flush_interval_ms: int | None = None
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_scheduler_interval_ms: int = LONG_MAX
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_index_interval_bytes: int = 4096
    log_index_size_max_bytes: int = 10_485_760
    log_initial_task_delay_ms: int = 30_000
    log_local_retention_bytes: int = -2
    log_local_retention_ms: int = -2
    log_message_timestamp_after_max_ms: int = 3_600_000
    log_message_timestamp_before_max_ms: int = LONG_MAX
    log_message_timestamp_type: str = "CreateTime"
    log_preallocate: bool = False
    log_retention_bytes: int = -1
    log_retention_check_interval_ms: int = 300_000
    log_retention_hours: int = 168
    log_retention_minutes: int | None = None
    log_retention_ms: int | None = None
    log_roll_hours: int = 168
    log_roll_jitter_hours: int = 0
    log_roll_jitter_ms: int | None = None
    log_roll_ms: int | None = None
    log_segment_bytes: int = 1_073_741_824
    log_segment_delete_delay_ms: int = 60_000
    producer_id_expiration_check_interval_ms: int = 600_000
    producer_id_expiration_ms: int = 86_400_000

    # Groups and offsets
    group_consumer_assignment_interval_ms: int = 1000
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_heartbeat_interval_ms: int = 5000
    group_consumer_max_assignment_interval_ms: int = 15_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_max_size: int = INT_MAX
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_min_heartbeat_interval_ms: int = 5000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_session_timeout_ms: int = 45_000
    group_coordinator_append_linger_ms: int = -1
    group_coordinator_background_threads: int = 2
    group_coordinator_cached_buffer_max_bytes: int = 1_048_588
    group_coordinator_rebalance_protocols: tuple[str, ...] = ("classic", "consumer", "streams")
    group_coordinator_threads: int = 4
    group_initial_rebalance_delay_ms: int = 3000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = INT_MAX
    group_min_session_timeout_ms: int = 6000
    offset_metadata_max_bytes: int = 4096
    offsets_commit_timeout_ms: int = 5000
    offsets_load_buffer_size: int = 5_242_880
    offsets_retention_check_interval_ms: int = 600_000
    offsets_retention_minutes: int = 10_080
    offsets_topic_compression_codec: int = 0
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 3
    offsets_topic_segment_bytes: int = 104_857_600

    # Transactions
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_max_timeout_ms: int = 900_000
    transaction_partition_verification_enable: bool = True
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_state_log_load_buffer_size: int = 5_242_880
    transaction_state_log_min_isr: int = 2
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 3
    transaction_state_log_segment_bytes: int = 104_857_600
    transaction_two_phase_commit_enable: bool = False
    transactional_id_expiration_ms: int = 604_800_000
    add_partitions_to_txn_retry_backoff_max_ms: int = 100
    add_partitions_to_txn_retry_backoff_ms: int = 20
    unstable_api_versions_enable: bool = False

    # Replication
    replica_fetch_backoff_ms: int = 1000
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_min_bytes: int = 1
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_wait_max_ms: int = 500
    replica_high_watermark_checkpoint_interval_ms: int = 5000
    replica_lag_time_max_ms: int = 30_000
    replica_selector_class: str | None = None
    replica_socket_receive_buffer_bytes: int = 65_536
    replica_socket_timeout_ms: int = 30_000
    num_replica_fetchers: int = 1
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    unclean_leader_election_interval_ms: int = 300_000

    # Controller and quorum
    controller_quorum_append_linger_ms: int = 25
    controller_quorum_auto_join_enable: bool = False
    controller_quorum_bootstrap_servers: tuple[str, ...] = ()
    controller_quorum_election_backoff_max_ms: int = 1000
    controller_quorum_election_timeout_ms: int = 1000
    controller_quorum_fetch_max_bytes: int = 1_048_576
    controller_quorum_fetch_snapshot_max_bytes: int = 1_048_576
    controller_quorum_fetch_timeout_ms: int = 2000
    controller_quorum_request_timeout_ms: int = 2000
    controller_quorum_retry_backoff_ms: int = 20
    controller_quorum_voters: tuple[Voter, ...] = ()
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1
    controller_socket_timeout_ms: int = 30_000
    server_max_startup_time_ms: int = 9_223_372_036_854_775_807
    broker_heartbeat_interval_ms: int = 2000
    broker_session_timeout_ms: int = 9000
    initial_broker_registration_timeout_ms: int = 60_000
    metadata_log_max_record_bytes_between_snapshots: int = 20_971_520
    metadata_log_max_snapshot_interval_ms: int = 3_600_000
    metadata_log_segment_bytes: int = 1_073_741_824
    metadata_log_segment_ms: int = 604_800_000
    metadata_max_idle_interval_ms: int = 500
    metadata_max_retention_bytes: int = 104_857_600
    metadata_max_retention_ms: int = 604_800_000

    # Quotas and metrics
    alter_log_dirs_replication_quota_window_num: int = 11
    alter_log_dirs_replication_quota_window_size_seconds: int = 1
    metrics_num_samples: int = 2
    metrics_recording_level: str = "INFO"
    metrics_sample_window_ms: int = 30_000
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    replication_quota_window_num: int = 11
    replication_quota_window_size_seconds: int = 1
    telemetry_max_bytes: int = 1_048_576

    # Ours; config/server_table.py says what each is for.
    barnabas_authentication_timeout_ms: int = 10_000
    barnabas_auto_format: bool = False
    barnabas_busy_poll_us: int = 50
    barnabas_fast_fencing: bool = True
    barnabas_fast_fencing_silence_ms: int = 1_800
    barnabas_frame_deadline_ms: int = 30_000
    barnabas_max_connections: int = 10_000
    barnabas_max_connections_per_ip: int = 5_000
    barnabas_metrics_lag_series_max: int = 10_000
    barnabas_metrics_listener: str = ""
    barnabas_queued_max_request_bytes: int = 1_073_741_824
    barnabas_record_validation: str = "header"
    barnabas_request_bytes_max: int = 16_777_216
    barnabas_request_entries_max: int = 20_000

    def __init__(self, **settings: Any) -> None:
        for name in settings:
            if name not in ServerConfig.__annotations__:
                raise TypeError(f"ServerConfig has no field {name}")
        self.__dict__.update(settings)

    def __setattr__(self, name: str, _value: object) -> None:
        raise AttributeError(f"ServerConfig is read-only: {name}")

    @property
    def client_listeners(self) -> tuple[Endpoint, ...]:
        """The listeners that serve clients: all but the controller's."""
        return tuple(endpoint for endpoint in self.listeners if endpoint.listener_name not in self.controller_listener_names)

    @property
    def client_advertised_listeners(self) -> tuple[Endpoint, ...]:
        """What clients are told, each by the listener they came by."""
        return tuple(endpoint for endpoint in self.advertised_listeners if endpoint.listener_name not in self.controller_listener_names)

    @property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        """The listeners of this node's controller; a node that is its own only controller may have none."""
        return tuple(endpoint for endpoint in self.listeners if endpoint.listener_name in self.controller_listener_names)

    @property
    def early_listener_names(self) -> tuple[str, ...]:
        """The listeners that accept connections before the ACLs are loaded: by default the controllers'."""
        named = self.early_start_listeners
        return self.controller_listener_names if named is None else tuple(name.upper() for name in named)

    @property
    def is_own_quorum_server(self) -> bool:
        """Whether controller.quorum.bootstrap.servers names no other node than this one, by the port of its controller listener."""
        key = "controller.quorum.bootstrap.servers"
        own_ports = [endpoint.port for endpoint in self.controller_listeners]
        own_hosts = {"localhost", "127.0.0.1", *(each.host for each in (*self.listeners, *self.advertised_listeners))}
        servers = [parse_host_and_port(key, server) for server in self.controller_quorum_bootstrap_servers]
        return all(port in own_ports and host in own_hosts for host, port in servers)

    @property
    def connections_limit(self) -> int:
        return min(self.max_connections, self.barnabas_max_connections)

    @property
    def connections_per_ip_limit(self) -> int:
        """For an address that max.connections.per.ip.overrides does not name."""
        return min(self.max_connections_per_ip, self.barnabas_max_connections_per_ip)

    @property
    def metrics_address(self) -> tuple[str, int] | None:
        """Host and port of barnabas.metrics.listener, None when metrics are not served."""
        listener = self.barnabas_metrics_listener
        return parse_host_and_port("barnabas.metrics.listener", listener) if listener else None

    @property
    def queued_request_bytes_limit(self) -> int:
        """Bytes of requests held at once, over all connections."""
        return self.queued_max_request_bytes if self.queued_max_request_bytes > 0 else self.barnabas_queued_max_request_bytes

    def value_of(self, name: str) -> Value:
        """The value of the property `name`: as it was set, else Kafka's default. None is null. KeyError for an unknown name."""
        known = SERVER_PROPERTIES[name]
        text = self.texts.get(name)
        return known.default if text is None else known.parse(text)

    def settings_without_effect(self) -> list[str]:
        """The known properties that were set and change nothing here, in alphabetical order. Loads the sentences about properties."""
        from config.docs import has_effect

        return sorted(name for name in self.texts if name not in self.unknown_keys and not has_effect(name))

    def is_set(self, name: str) -> bool:
        """Whether the file, the environment or the command line set `name` (DescribeConfigs: STATIC_BROKER_CONFIG)."""
        return name in self.texts
