"""A topic's settings: `LogConfig` as the log reads them, and every topic property of Apache Kafka 4.3 (LogConfig, TopicConfig).

A topic property that is not set on the topic comes from the broker: `retention.ms` from `log.retention.ms`, else
`log.retention.minutes`, else `log.retention.hours` (Kafka's ServerTopicConfigSynonyms). Pure functions over text and values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from config.properties import ConfigError, Property, PropertyTable, Value

LONG_MAX = 2**63 - 1

# Columns as in config/server_table.py. Where a running topic may change a property: all of them, so the column says nothing here.
TOPIC_TABLE = """
cleanup.policy                           list     delete               compact|delete                              -
compression.gzip.level                   int      -1                   1..9|-1                                     -
compression.lz4.level                    int      9                    1..17                                       -
compression.type                         string   producer             uncompressed|zstd|lz4|snappy|gzip|producer  -
compression.zstd.level                   int      3                    -131072..22                                 -
delete.retention.ms                      long     86400000             0..                                         -
file.delete.delay.ms                     long     60000                0..                                         -
flush.messages                           long     9223372036854775807  1..                                         -
flush.ms                                 long     9223372036854775807  0..                                         -
follower.replication.throttled.replicas  list     ""                   replicas                                    -
index.interval.bytes                     int      4096                 0..                                         -
internal.segment.bytes                   int      null                 -                                           - internal
leader.replication.throttled.replicas    list     ""                   replicas                                    -
local.retention.bytes                    long     -2                   -2..                                        -
local.retention.ms                       long     -2                   -2..                                        -
max.compaction.lag.ms                    long     9223372036854775807  1..                                         -
max.message.bytes                        int      1048588              0..                                         -
message.timestamp.after.max.ms           long     3600000              0..                                         -
message.timestamp.before.max.ms          long     9223372036854775807  0..                                         -
message.timestamp.type                   string   CreateTime           CreateTime|LogAppendTime                    -
min.cleanable.dirty.ratio                double   0.5                  0..1                                        -
min.compaction.lag.ms                    long     0                    0..                                         -
min.insync.replicas                      int      1                    1..                                         -
preallocate                              boolean  false                -                                           -
remote.log.copy.disable                  boolean  false                -                                           -
remote.log.delete.on.disable             boolean  false                -                                           -
remote.storage.enable                    boolean  false                -                                           -
retention.bytes                          long     -1                   -                                           -
retention.ms                             long     604800000            -1..                                        -
segment.bytes                            int      1073741824           1048576..                                   -
segment.index.bytes                      int      10485760             4..                                         -
segment.jitter.ms                        long     0                    0..                                         -
segment.ms                               long     604800000            1..                                         -
unclean.leader.election.enable           boolean  false                -                                           -
barnabas.record.validation               string   header               header|full                                 -
"""

_SERVER_SYNONYMS: dict[str, tuple[str, ...]] = {
    "cleanup.policy": ("log.cleanup.policy",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.type": ("compression.type",),
    "compression.zstd.level": ("compression.zstd.level",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "local.retention.bytes": ("log.local.retention.bytes",),
    "local.retention.ms": ("log.local.retention.ms",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "max.message.bytes": ("message.max.bytes",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "min.insync.replicas": ("min.insync.replicas",),
    "preallocate": ("log.preallocate",),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.bytes": ("log.segment.bytes",),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
    "barnabas.record.validation": ("barnabas.record.validation",),
}

_MILLISECONDS_PER_UNIT = {"minutes": 60_000, "hours": 3_600_000}

TOPIC_PROPERTIES: Mapping[str, Property] = PropertyTable(TOPIC_TABLE, _SERVER_SYNONYMS)
"""Every topic property by name; `synonyms` holds the broker properties it defaults to, the one that wins first."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One topic's effective settings. `LogConfig()` has Kafka's defaults."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    file_delete_delay_ms: int = 60_000
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    preallocate: bool = False
    min_cleanable_dirty_ratio: float = 0.5
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    remote_storage_enable: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    record_validation: str = "header"
    shown_segment_bytes: int | None = None
    """What segment.bytes says where internal.segment.bytes decides instead."""

    is_judged_by_header: bool = field(init=False, repr=False, compare=False)
    """Whether a produced batch is appended on the word of its header and CRC. Else its records are walked: for the keys of a compacted
    topic, for another compression, or because record validation is `full`. Worked out once, for it is asked of every batch."""
    max_segment_ms: int = field(init=False, repr=False, compare=False)
    """How old a segment becomes before an append rolls it: segment.ms, or max.compaction.lag.ms where that is smaller and the topic is
    compacted, for the active segment is never compacted (LogConfig.maxSegmentMs). Worked out once too."""
    batch_bytes_max: int = field(init=False, repr=False, compare=False)
    """The largest batch that neither max.message.bytes nor segment.bytes refuses."""
    is_log_append_time: bool = field(init=False, repr=False, compare=False)
    """Whether the broker stamps batches, by message.timestamp.type."""

    def __post_init__(self) -> None:
        is_judged_by_header = self.compression_type == "producer" and not self.is_compacted and not self.has_full_validation
        object.__setattr__(self, "is_judged_by_header", is_judged_by_header)  # the instance is frozen
        has_lag = self.is_compacted and self.max_compaction_lag_ms > 0
        object.__setattr__(self, "max_segment_ms", min(self.segment_ms, self.max_compaction_lag_ms) if has_lag else self.segment_ms)
        object.__setattr__(self, "batch_bytes_max", min(self.max_message_bytes, self.segment_bytes))
        object.__setattr__(self, "is_log_append_time", self.message_timestamp_type == "LogAppendTime")

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether old segments are deleted. Neither this nor `is_compacted` means infinite retention (KIP-1161)."""
        return "delete" in self.cleanup_policy

    @property
    def has_full_validation(self) -> bool:
        """Whether every record of a batch is walked before it is appended, not only the batch's header."""
        return self.record_validation == "full"

    def value_of(self, name: str) -> Value:
        """The effective value of the topic property `name`, as DescribeConfigs reports it."""
        if name == _INTERNAL_SEGMENT_BYTES:
            return None if self.shown_segment_bytes is None else self.segment_bytes
        if name == "segment.bytes" and self.shown_segment_bytes is not None:
            return self.shown_segment_bytes
        value: Value = getattr(self, _field_of(TOPIC_PROPERTIES[name]))
        return value


_INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"


def log_config(defaults: LogConfig, overrides: Mapping[str, str]) -> LogConfig:
    """The effective settings of a topic with `overrides` on a broker with these `defaults` (`ServerConfig.topic_defaults`).

    Properties that this version does not know are skipped: a metadata log written by another version stays readable.
    Raises ConfigError for a value that cannot be read.
    """
    fields: dict[str, Any] = {}
    for name, text in overrides.items():
        known = TOPIC_PROPERTIES.get(name)
        if known is not None and name != _INTERNAL_SEGMENT_BYTES:
            fields[_field_of(known)] = known.parse(text)
    if _INTERNAL_SEGMENT_BYTES in overrides:
        # Kafka's own back door for tests: segments smaller than segment.bytes allows.
        fields["shown_segment_bytes"] = fields.get("segment_bytes", defaults.segment_bytes)
        fields["segment_bytes"] = TOPIC_PROPERTIES[_INTERNAL_SEGMENT_BYTES].parse(overrides[_INTERNAL_SEGMENT_BYTES])
    return replace(defaults, **fields) if fields else defaults


def validate_topic_configs(overrides: Mapping[str, str], defaults: LogConfig) -> None:
    """Refuse what a client may not set on a topic: unknown names, bad values, values that contradict each other. Raises ConfigError."""
    for name, text in overrides.items():
        known = TOPIC_PROPERTIES.get(name)
        if known is None:
            raise ConfigError(name, text, f"unknown topic config name: {name}")
        known.parse(text)
    config = log_config(defaults, overrides)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        why = f"min.compaction.lag.ms ({config.min_compaction_lag_ms}) > max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        raise ConfigError("min.compaction.lag.ms", config.min_compaction_lag_ms, why, message=f"conflict topic config setting {why}")
    if config.remote_storage_enable:
        why = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
        raise ConfigError("remote.storage.enable", "true", why, message=why)


def topic_defaults(set_values: Mapping[str, Value]) -> LogConfig:
    """The settings of a topic without overrides. `set_values` holds the broker properties that are set; the rest is Kafka's default.

    Raises ConfigError for what a topic could not be given either: log.roll.ms=0, though in its own range, is no segment.ms.
    """
    fields: dict[str, Any] = {}
    for topic_name, synonyms in _SERVER_SYNONYMS.items():
        for synonym in synonyms:
            if set_values.get(synonym) is not None:
                known = TOPIC_PROPERTIES[topic_name]
                value = fields[_field_of(known)] = _in_topic_units(synonym, set_values[synonym])
                violation = known.find_violation(value)
                if violation is not None:
                    raise ConfigError(synonym, known.format(set_values[synonym]), violation.why)
                break
    return LogConfig(**fields)


def in_topic_terms(synonym: str, text: str) -> str:
    """The `text` of the broker property `synonym` as the topic property takes it: every negative retention time is -1."""
    return "-1" if synonym == "log.retention.ms" and text.strip().startswith("-") else text


def _field_of(known: Property) -> str:
    return known.attribute.removeprefix("barnabas_")


def _in_topic_units(synonym: str, value: Value) -> Value:
    """`log.retention.hours=2` as milliseconds; every negative time means "no limit", as Kafka's KafkaConfig has it."""
    scale = _MILLISECONDS_PER_UNIT.get(synonym.rpartition(".")[2])
    if scale is not None and isinstance(value, int):
        value *= scale
    if synonym.startswith("log.retention.") and isinstance(value, int) and value < 0:
        return -1
    return value
