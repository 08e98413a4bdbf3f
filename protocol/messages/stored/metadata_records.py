"""Records of the metadata log, `__cluster_metadata-0`, as Kafka 4.3 writes them, and the frame around each record's value.

A value is: frame version 1, the record type's key, the record's version (three unsigned varints), then the message. Types and versions
that are not known come back as `UnknownMetadataRecord`, so that a log written by a newer broker can be read.

Source: org.apache.kafka.metadata.MetadataRecordSerde and the metadata module's record definitions.
"""

from __future__ import annotations

from typing import Any

from ...codec import decode, encode
from ...errors import DecodeError
from ...schema import Array, Bool, Bytes, Float64, Int8, Int16, Int32, Int64, String, UInt16, Uuid, message, schema_of, since, struct
from ...uuids import ZERO_UUID
from ...uvarint import read_uvarint, uvarint


@struct
class BrokerEndpoint:
    name: String = ""
    host: String = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


@struct
class BrokerFeature:
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@message(key=0, versions=(0, 4), flexible=0)
class RegisterBrokerRecord:
    broker_id: Int32 = 0
    is_migrating_zk_broker: Bool = since(2, default=False)
    incarnation_id: Uuid = ZERO_UUID
    broker_epoch: Int64 = 0
    end_points: Array[BrokerEndpoint] = []
    features: Array[BrokerFeature] = []
    rack: String | None = ""
    fenced: Bool = True
    in_controlled_shutdown: Bool = since(1, default=False)
    log_dirs: Array[Uuid] = since(3, tag=0, default=[])
    cordoned_log_dirs: Array[Uuid] | None = since(4, tag=1, default=None)


@message(key=1, versions=(0, 0), flexible=0)
class UnregisterBrokerRecord:
    broker_id: Int32 = 0
    broker_epoch: Int64 = 0


@message(key=2, versions=(0, 0), flexible=0)
class TopicRecord:
    name: String = ""
    topic_id: Uuid = ZERO_UUID


@message(key=3, versions=(0, 2), flexible=0)
class PartitionRecord:
    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    replicas: Array[Int32] = []
    isr: Array[Int32] = []
    removing_replicas: Array[Int32] = []
    adding_replicas: Array[Int32] = []
    leader: Int32 = -1
    leader_recovery_state: Int8 = since(0, tag=0, default=0)
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Array[Uuid] = since(1, default=[])
    eligible_leader_replicas: Array[Int32] | None = since(2, tag=1, default=None)
    last_known_elr: Array[Int32] | None = since(2, tag=2, default=None)


@message(key=4, versions=(0, 0), flexible=0)
class ConfigRecord:
    """Sets one setting of a resource; a null value deletes it. Resource type 2 is a topic, 4 a broker."""

    resource_type: Int8 = 0
    resource_name: String = ""
    name: String = ""
    value: String | None = ""


@message(key=5, versions=(0, 2), flexible=0)
class PartitionChangeRecord:
    """Says what changed; a field at its default stayed as it was. Leader -2 is "no change", -1 "no leader"."""

    partition_id: Int32 = -1
    topic_id: Uuid = ZERO_UUID
    isr: Array[Int32] | None = since(0, tag=0, default=None)
    leader: Int32 = since(0, tag=1, default=-2)
    replicas: Array[Int32] | None = since(0, tag=2, default=None)
    removing_replicas: Array[Int32] | None = since(0, tag=3, default=None)
    adding_replicas: Array[Int32] | None = since(0, tag=4, default=None)
    leader_recovery_state: Int8 = since(0, tag=5, default=-1)
    directories: Array[Uuid] | None = since(1, tag=8, default=None)
    eligible_leader_replicas: Array[Int32] | None = since(2, tag=6, default=None)
    last_known_elr: Array[Int32] | None = since(2, tag=7, default=None)


@message(key=7, versions=(0, 0), flexible=0)
class FenceBrokerRecord:
    id: Int32 = 0
    epoch: Int64 = 0


@message(key=8, versions=(0, 0), flexible=0)
class UnfenceBrokerRecord:
    id: Int32 = 0
    epoch: Int64 = 0


@message(key=9, versions=(0, 0), flexible=0)
class RemoveTopicRecord:
    topic_id: Uuid = ZERO_UUID


@message(key=10, versions=(0, 0), flexible=0)
class DelegationTokenRecord:
    owner: String = ""
    requester: String = ""
    renewers: Array[String] = []
    issue_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    expiration_timestamp: Int64 = 0
    token_id: String = ""


@message(key=11, versions=(0, 0), flexible=0)
class UserScramCredentialRecord:
    name: String = ""
    mechanism: Int8 = 0
    salt: Bytes = since(0, default=b"", secret=True)
    stored_key: Bytes = since(0, default=b"", secret=True)
    server_key: Bytes = since(0, default=b"", secret=True)
    iterations: Int32 = 0


@message(key=12, versions=(0, 0), flexible=0)
class FeatureLevelRecord:
    """Finalizes a feature's level; level 0 removes it."""

    name: String = ""
    feature_level: Int16 = 0


@struct
class EntityData:
    entity_type: String = ""
    entity_name: String | None = ""


@message(key=14, versions=(0, 0), flexible=0)
class ClientQuotaRecord:
    entity: Array[EntityData] = []
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


@message(key=15, versions=(0, 0), flexible=0)
class ProducerIdsRecord:
    """Says that the producer ids below `next_producer_id` have been handed out."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


@message(key=17, versions=(0, 3), flexible=0)
class BrokerRegistrationChangeRecord:
    """Changes a registration: -1 unfences or ends a controlled shutdown, 1 fences or begins one, 0 leaves it."""

    broker_id: Int32 = 0
    broker_epoch: Int64 = 0
    fenced: Int8 = since(0, tag=0, default=0)
    in_controlled_shutdown: Int8 = since(1, tag=1, default=0)
    log_dirs: Array[Uuid] = since(2, tag=2, default=[])
    cordoned_log_dirs: Array[Uuid] | None = since(3, tag=3, default=None)


@message(key=18, versions=(0, 0), flexible=0)
class AccessControlEntryRecord:
    id: Uuid = ZERO_UUID
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 0
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message(key=19, versions=(0, 0), flexible=0)
class RemoveAccessControlEntryRecord:
    id: Uuid = ZERO_UUID


@message(key=20, versions=(0, 0), flexible=0)
class NoOpRecord:
    """Moves the high watermark on, nothing else."""


@message(key=21, versions=(0, 0), flexible=0)
class ZkMigrationStateRecord:
    """Left from the migration off ZooKeeper; Kafka 4 writes it once and otherwise ignores it."""

    zk_migration_state: Int8 = 0


@message(key=22, versions=(0, 0), flexible=0)
class RemoveUserScramCredentialRecord:
    name: String = ""
    mechanism: Int8 = 0


@message(key=23, versions=(0, 0), flexible=0)
class BeginTransactionRecord:
    name: String | None = since(0, tag=0, default=None)


@message(key=24, versions=(0, 0), flexible=0)
class EndTransactionRecord:
    pass


@message(key=25, versions=(0, 0), flexible=0)
class AbortTransactionRecord:
    reason: String | None = since(0, tag=0, default=None)


@message(key=26, versions=(0, 0), flexible=0)
class RemoveDelegationTokenRecord:
    token_id: String = ""


@struct
class ControllerEndpoint:
    name: String = ""
    host: String = ""
    port: UInt16 = 0
    security_protocol: Int16 = 0


@struct
class ControllerFeature:
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@message(key=27, versions=(0, 0), flexible=0)
class RegisterControllerRecord:
    controller_id: Int32 = 0
    incarnation_id: Uuid = ZERO_UUID
    zk_migration_ready: Bool = False
    end_points: Array[ControllerEndpoint] = []
    features: Array[ControllerFeature] = []


@message(key=28, versions=(0, 0), flexible=0)
class ClearElrRecord:
    """Clears the eligible leader replicas of one topic, or of all when the name is null."""

    topic_name: String = ""


METADATA_FRAME_VERSION = 1

METADATA_RECORDS: dict[int, type[Any]] = {
    schema_of(cls).key or 0: cls
    for cls in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        ZkMigrationStateRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
        RegisterControllerRecord,
        ClearElrRecord,
    )
}
"""Record type's key → class."""


class UnknownMetadataRecord:
    """A record of a type or version that is not declared here."""

    __slots__ = ("body", "key", "version")

    def __init__(self, key: int, version: int, body: bytes) -> None:
        self.key = key
        self.version = version
        self.body = body


def encode_metadata_record(record: object, version: int) -> bytes:
    """Returns the value of the log's record that holds `record`."""
    key = schema_of(type(record)).key
    if key is None or METADATA_RECORDS.get(key) is not type(record):
        raise ValueError(f"{type(record).__name__} is not a metadata record")
    return uvarint(METADATA_FRAME_VERSION) + uvarint(key) + uvarint(version) + encode(record, version)


def decode_metadata_record(value: bytes | memoryview) -> tuple[Any, int]:
    """Returns the record in a value of the metadata log and its version; raises DecodeError for anything malformed."""
    frame_version, position = read_uvarint(value, 0)
    if frame_version != METADATA_FRAME_VERSION:
        raise DecodeError(f"metadata record of frame version {frame_version}")
    key, position = read_uvarint(value, position)
    version, position = read_uvarint(value, position)
    cls = METADATA_RECORDS.get(key)
    if cls is None or not schema_of(cls).has_version(version):
        return UnknownMetadataRecord(key, version, bytes(value[position:])), version
    record, end = decode(cls, version, value, position)
    if end != len(value):
        raise DecodeError(f"{len(value) - end} bytes after a {cls.__name__}")
    return record, version
