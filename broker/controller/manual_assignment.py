"""Checks of the replicas that a client assigns to a partition itself. Pure.

Source: ReplicationControlManager.validateManualPartitionAssignment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from broker.metadata.image import BrokerImage
from protocol.errors import ErrorCode, KafkaError


def check_assignment(brokers: Mapping[int, BrokerImage], replicas: Sequence[int], replication_factor: int | None, partition: int) -> None:
    """Raises KafkaError INVALID_REPLICA_ASSIGNMENT for an impossible manual assignment."""
    check_replicas(brokers, replicas)
    if replication_factor is not None and len(replicas) != replication_factor:
        why = (
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not consistent "
            f"with previous partitions, which have {replication_factor} replica(s)."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    if not active(brokers, replicas):
        why = f"All brokers specified in the manual partition assignment for partition {partition} are fenced or in controlled shutdown."
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def check_replicas(brokers: Mapping[int, BrokerImage], replicas: Sequence[int]) -> None:
    """Raises KafkaError INVALID_REPLICA_ASSIGNMENT for an empty list, for a duplicate broker and for an unregistered one."""
    prefix = "The manual partition assignment includes "
    if not replicas:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{prefix}an empty replica list.")
    seen: set[int] = set()
    faulty: int | None = None  # the lowest, as in Kafka, which looks at them in order
    for broker in replicas:
        if broker in brokers and broker not in seen:
            seen.add(broker)
        elif faulty is None or broker < faulty:
            faulty = broker
    if faulty is None:
        return
    if faulty not in brokers:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{prefix}broker {faulty}, but no such broker is registered.")
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{prefix}the broker {faulty} more than once.")


def active(brokers: Mapping[int, BrokerImage], replicas: Iterable[int]) -> list[int]:
    """Returns those of the replicas that can lead or be in an ISR."""
    return [replica for replica in replicas if brokers[replica].is_active]
