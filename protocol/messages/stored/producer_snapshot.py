"""The body of a `.snapshot` file, after its int16 version: the last batch of every producer of one partition.

The crc is CRC-32C over everything behind it; `storage.producer_state` computes and checks it.

Source: org.apache.kafka.storage.internals.log.ProducerStateManager and the ProducerSnapshot message definition.
"""

from __future__ import annotations

from ...schema import Array, Int16, Int32, Int64, UInt32, message, since, struct


@struct
class ProducerEntry:
    """-1 stands for "none" in `last_offset`, `coordinator_epoch` and `current_txn_first_offset`."""

    producer_id: Int64 = since(1, default=0)
    epoch: Int16 = since(1, default=0)
    last_sequence: Int32 = since(1, default=0)
    last_offset: Int64 = since(1, default=0)
    offset_delta: Int32 = since(1, default=0)
    timestamp: Int64 = since(1, default=0)
    coordinator_epoch: Int32 = since(1, default=0)
    current_txn_first_offset: Int64 = since(1, default=0)


@message(versions=(1, 1), flexible=None)
class ProducerSnapshot:
    crc: UInt32 = since(1, default=0)
    producer_entries: Array[ProducerEntry] = since(1, default=[])
