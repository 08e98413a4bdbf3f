"""Writes a snapshot: converts the cluster's state to records that recreate it, and writes their file.

Without snapshots every start would replay the whole history. The file appears under its name complete or not at all.

Source: org.apache.kafka.image (the write methods), org.apache.kafka.snapshot.RecordsSnapshotWriter (KIP-630).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from broker.metadata.cluster_state import ClusterState
from broker.metadata.encoded_topic_records import partition_record
from broker.metadata.features import METADATA_VERSION_FEATURE, METADATA_VERSION_LEVEL
from broker.metadata.image import BrokerImage
from broker.metadata.record_format import build_metadata_batch
from broker.quorum.log import control_batch
from broker.quorum.raft_log import OffsetAndEpoch
from broker.quorum.snapshot_files import snapshot_name
from protocol.messages.stored.control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from protocol.messages.stored.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from protocol.records import ControlRecordType
from storage.disk import SYSTEM_DISK, Disk
from storage.files import replace_file

RECORDS_PER_BATCH = 100  # a millisecond or two to encode


def state_records(state: ClusterState) -> Iterator[Any]:
    """Yields records whose replay recreates `state`. The metadata version comes first: it decides the versions of the others."""
    for name in sorted(state.features, key=lambda name: (name != METADATA_VERSION_FEATURE, name)):
        yield FeatureLevelRecord(name=name, feature_level=state.features[name])
    for broker in state.brokers.values():
        yield _registration(broker)
    for topic in state.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for index, partition in enumerate(topic.partitions):
            yield partition_record(topic.topic_id, index, partition)
    for (resource_type, resource_name), configs in state.configs.items():
        for name, value in configs.items():
            yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
    yield from state.client_quotas.records()
    yield from state.acls.records()
    yield from state.scram.records()
    yield from state.tokens.by_id.values()
    yield from state.kept
    if state.next_producer_id > 0:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=state.next_producer_id)


def snapshot_batches(
    records: Iterable[Any],
    *,
    epoch: int,
    last_timestamp: int,
    now_ms: int,
    quorum_records: Sequence[tuple[ControlRecordType, Any]] = (),
    level: int = METADATA_VERSION_LEVEL,
) -> Iterator[bytes | bytearray]:
    """The file's content: a header with the quorum's records, the cluster's in batches, a footer. Each step encodes one batch.

    `level` is the finalized metadata.version."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=last_timestamp)
    head = [(ControlRecordType.SNAPSHOT_HEADER, header), *quorum_records]
    yield control_batch(head, base_offset=0, epoch=epoch, now_ms=now_ms)
    base_offset = len(head)
    left = iter(records)
    while batch := list(islice(left, RECORDS_PER_BATCH)):
        yield build_metadata_batch(batch, base_offset=base_offset, epoch=epoch, now_ms=now_ms, level=level)
        base_offset += len(batch)
    footer = (ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooterRecord())
    yield control_batch([footer], base_offset=base_offset, epoch=epoch, now_ms=now_ms)


def write_snapshot(directory: Path, content: bytes, end_offset: int, epoch: int, disk: Disk = SYSTEM_DISK) -> None:
    """Write the file durably. Blocks. Raises StorageError."""
    replace_file(directory / snapshot_name(OffsetAndEpoch(end_offset, epoch)), content, disk=disk)


def _registration(broker: BrokerImage) -> RegisterBrokerRecord:
    record = broker.registration
    return RegisterBrokerRecord(
        broker_id=broker.node_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=record.end_points,
        features=record.features,
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.is_in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=None if broker.cordoned_log_dirs is None else list(broker.cordoned_log_dirs),
    )
