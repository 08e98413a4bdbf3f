"""The controller's decisions about the cluster itself: its first records, who is a broker, who leads what, producer id blocks. Pure.

Source: ActivationRecordsGenerator, ClusterControlManager, ReplicationControlManager.generateLeaderAndIsrUpdates, ProducerIdControlManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from broker.metadata.cluster_state import ClusterState
from broker.metadata.image import LOST_DIRECTORY, MIGRATING_DIRECTORY, NO_LEADER, PartitionImage, ProducerIdBlock, TopicImage
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.stored.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
)

PRODUCER_ID_BLOCK_SIZE = 1000
PRODUCER_ID_MAX = 2**63 - 1

RECOVERED = 0

_FENCE = 1


class Directories(Protocol):
    """Knows a broker's log directories."""

    def find_directory(self, key: tuple[str, int], known: bytes) -> bytes:
        """Where the replica of (topic, index) is that was in `known`; LOST_DIRECTORY when it is offline."""
        ...


def activation_records(state: ClusterState, bootstrap: Sequence[Any]) -> list[Any]:
    """What a new leader of the log writes first: the end of an unfinished transaction, and a new cluster's first records."""
    records: list[Any] = []
    if state.is_in_transaction:
        records.append(AbortTransactionRecord(reason="controller failover"))
    if not state.features and bootstrap:
        records += [BeginTransactionRecord(name="Bootstrap records"), *bootstrap, EndTransactionRecord()]
    return records


def fencing_records(state: ClusterState, *, except_node_id: int) -> list[Any]:
    """Fence every other broker: in a quorum of one no other can be alive, whatever an older log says."""
    return [
        BrokerRegistrationChangeRecord(broker_id=broker.node_id, broker_epoch=broker.epoch, fenced=_FENCE)
        for broker in state.brokers.values()
        if broker.node_id != except_node_id and not broker.is_fenced
    ]


def election_records(state: ClusterState, node_id: int, replicas: Directories | None = None) -> list[Any]:
    """Make broker `node_id`, which just (re)started, leader of what it led before and of leaderless partitions that it may lead.

    With `replicas` the metadata learns where they are, and those whose directory is offline are led by nobody.

    The leader epoch grows even where the leader stays the same: consumers tell by it that records may have been lost with a
    machine that lost its power (KIP-320). Partitions of other live leaders are left alone.
    """
    records = []
    for topic in state.topics.values():
        for index, partition in enumerate(topic.partitions):
            if replicas is None or node_id not in partition.replicas or len(partition.directories) != len(partition.replicas):
                directories = partition.directories
            else:
                place = partition.replicas.index(node_id)
                known = partition.directories[place]
                directories = _replaced(partition.directories, place, replicas.find_directory((topic.name, index), known))
                if directories[place] == LOST_DIRECTORY:
                    if partition.leader == node_id or directories != partition.directories:
                        records.append(lost_replica_record(topic, index, partition, node_id))
                    continue
            record = _elect(state, topic, index, partition, node_id)
            if record is not None:
                if directories != partition.directories:
                    record.directories = list(directories)
                records.append(record)
    return records


def producer_id_block(state: ClusterState, *, node_id: int, broker_epoch: int) -> tuple[ProducerIdBlock, list[Any]]:
    """The next block of producer ids and the record that hands it out. Raises KafkaError when there are no ids left."""
    first = state.next_producer_id
    if first > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit"
        )
    record = ProducerIdsRecord(broker_id=node_id, broker_epoch=broker_epoch, next_producer_id=first + PRODUCER_ID_BLOCK_SIZE)
    return ProducerIdBlock(first, PRODUCER_ID_BLOCK_SIZE), [record]


def lost_replica_record(topic: TopicImage, index: int, partition: PartitionImage, node_id: int) -> PartitionChangeRecord:
    record = PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id)
    if partition.leader == node_id:
        record.leader = NO_LEADER
    if len(partition.directories) == len(partition.replicas):
        record.directories = list(with_directory(partition, node_id, LOST_DIRECTORY))
    return record


def with_directory(partition: PartitionImage, node_id: int, directory: bytes) -> tuple[bytes, ...]:
    """The partition's directories, with that of broker `node_id` as given; before KIP-858 none were known."""
    known = partition.directories
    if len(known) != len(partition.replicas):
        known = (MIGRATING_DIRECTORY,) * len(partition.replicas)
    return _replaced(known, partition.replicas.index(node_id), directory)


def _replaced(directories: tuple[bytes, ...], place: int, directory: bytes) -> tuple[bytes, ...]:
    return (*directories[:place], directory, *directories[place + 1 :])


def _elect(state: ClusterState, topic: TopicImage, index: int, partition: PartitionImage, node_id: int) -> PartitionChangeRecord | None:
    if partition.leader not in (node_id, NO_LEADER):
        leader = state.brokers.get(partition.leader)
        if leader is not None and leader.is_active:
            return None
    change = PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=node_id)
    if partition.leader_recovery_state != RECOVERED and partition.replicas == (node_id,):
        # After an unclean election a leader first brings its followers in line; here there are none.
        change.leader_recovery_state = RECOVERED
    if node_id in partition.isr:
        # Members that cannot be alive leave the ISR, so that they do not hold back the high watermark.
        isr = [replica for replica in partition.isr if replica == node_id or _is_active(state, replica)]
        if len(isr) < len(partition.isr):
            change.isr = isr
        return change
    last_known = partition.last_known_elr == (node_id,) and not partition.eligible_leader_replicas
    if not partition.isr and (node_id in partition.eligible_leader_replicas or last_known or partition.replicas == (node_id,)):
        # KIP-966: the last member may have left the ISR at a clean stop. It has every committed record.
        change.isr = [node_id]
        change.eligible_leader_replicas = []
        change.last_known_elr = []
        return change
    if partition.leader == NO_LEADER:
        return None
    return PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, leader=NO_LEADER)


def _is_active(state: ClusterState, node_id: int) -> bool:
    broker = state.brokers.get(node_id)
    return broker is not None and broker.is_active
