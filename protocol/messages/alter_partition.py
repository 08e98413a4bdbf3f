"""AlterPartition (key 56): a partition leader asks the controller for another ISR (KIP-497, KIP-903)."""

from __future__ import annotations

from ..schema import Array, Int8, Int16, Int32, Int64, Uuid, api, message, since, struct
from ..uuids import ZERO_UUID


@struct
class BrokerState:
    broker_id: Int32 = since(3, default=0)
    broker_epoch: Int64 = since(3, default=-1)


@struct
class AlterPartitionRequestPartitionData:
    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: Array[Int32] = since(2, until=2, default=[])
    new_isr_with_epochs: Array[BrokerState] = since(3, default=[])
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0


@struct
class AlterPartitionRequestTopicData:
    topic_id: Uuid = since(2, default=ZERO_UUID, ignorable=True)
    partitions: Array[AlterPartitionRequestPartitionData] = []


@api(key=56, versions=(2, 3), flexible=0)
class AlterPartitionRequest:
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: Array[AlterPartitionRequestTopicData] = []


@struct
class AlterPartitionResponsePartitionData:
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: Array[Int32] = []
    leader_recovery_state: Int8 = since(2, default=0, ignorable=True)
    partition_epoch: Int32 = 0


@struct
class AlterPartitionResponseTopicData:
    topic_id: Uuid = since(2, default=ZERO_UUID, ignorable=True)
    partitions: Array[AlterPartitionResponsePartitionData] = []


@message(versions=(2, 3), flexible=0)
class AlterPartitionResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: Array[AlterPartitionResponseTopicData] = []
