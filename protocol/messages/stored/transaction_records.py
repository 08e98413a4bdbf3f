"""Records of `__transaction_state`: the durable state of each transactional id.

`broker/coordination/records.py` frames them. Version 0 is written at transaction.version 0, version 1 above it.

Source: org.apache.kafka.coordinator.transaction.TransactionLog and the transaction coordinator's record definitions.
"""

from __future__ import annotations

from ...schema import Array, Int8, Int16, Int32, Int64, String, message, since, struct


@message(key=0, versions=(0, 0), flexible=None)
class TransactionLogKey:
    transactional_id: String = ""


@struct
class PartitionsSchema:
    topic: String = ""
    partition_ids: Array[Int32] = []


@message(versions=(0, 1), flexible=1)
class TransactionLogValue:
    """A transactional id's state. `transaction_partitions` is null in the state Empty. Kafka 4.3 neither writes nor uses
    `next_producer_epoch`."""

    producer_id: Int64 = 0
    previous_producer_id: Int64 = since(1, tag=0, default=-1)
    next_producer_id: Int64 = since(1, tag=1, default=-1)
    producer_epoch: Int16 = 0
    next_producer_epoch: Int16 = since(1, tag=3, default=-1)
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: Array[PartitionsSchema] | None = since(0, default=[])
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    client_transaction_version: Int16 = since(1, tag=2, default=0)
