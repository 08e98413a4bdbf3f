"""What a partition's files hold, declared in construct: read from top to bottom, this is the format on disk.

The broker does not use it. It writes and reads these files with `struct`, batch by batch and entry by entry, in
`protocol/records.py`, `storage/index.py` and their neighbours: construct takes 46 ms to import, and 70 times as long for a batch's header.
Inspection (`storage/inspection.py`) prints with these declarations what is on disk, and tests read with them what the broker wrote: the
two share no code, so that a wrong field would have to be wrong in both.

Numbers are big endian. `parse` raises construct.ConstructError where bytes do not fit. Sources: the protocol's page on record batches,
DefaultRecordBatch, DefaultRecord, ControlRecordType, OffsetIndex, TimeIndex, ProducerStateManager, AbortedTxn, CheckpointFile,
PartitionMetadataFile.
"""

from __future__ import annotations

import construct as c

# -- <offset>.log: record batches, one after the other --------------------------------------------------------------------

ATTRIBUTES = c.BitStruct(
    "unused" / c.BitsInteger(9),
    "has_delete_horizon" / c.Flag,  # base_timestamp is the time from which on compaction may drop tombstones and markers (KIP-534)
    "is_control" / c.Flag,
    "is_transactional" / c.Flag,
    "timestamp_type" / c.Enum(c.BitsInteger(1), CreateTime=0, LogAppendTime=1),
    "compression" / c.Enum(c.BitsInteger(3), none=0, gzip=1, snappy=2, lz4=3, zstd=4),
)

RECORD_BATCH_HEADER = c.Struct(
    "base_offset" / c.Int64sb,
    "batch_length" / c.Int32sb,  # bytes after this field
    "partition_leader_epoch" / c.Int32sb,
    "magic" / c.Int8sb,
    "crc" / c.Int32ub,  # CRC-32C of what follows, to the end of the batch
    "attributes" / ATTRIBUTES,
    "last_offset_delta" / c.Int32sb,
    "base_timestamp" / c.Int64sb,
    "max_timestamp" / c.Int64sb,
    "producer_id" / c.Int64sb,
    "producer_epoch" / c.Int16sb,
    "base_sequence" / c.Int32sb,
    "records_count" / c.Int32sb,
)

RECORD_BATCH = c.Struct(
    "header" / RECORD_BATCH_HEADER,
    "payload" / c.Bytes(c.this.header.batch_length + 12 - RECORD_BATCH_HEADER.sizeof()),  # the records, compressed as one stream
)

NULLABLE_BYTES = c.FocusedSeq(
    "content",
    "length" / c.Rebuild(c.ZigZag, lambda this: -1 if this.content is None else len(this.content)),
    "content" / c.If(c.this.length >= 0, c.Bytes(c.this.length)),
)

RECORD = c.Prefixed(
    c.ZigZag,
    c.Struct(
        "attributes" / c.Int8sb,  # unused
        "timestamp_delta" / c.ZigZag,
        "offset_delta" / c.ZigZag,
        "key" / NULLABLE_BYTES,
        "value" / NULLABLE_BYTES,
        "headers" / c.PrefixedArray(c.ZigZag, c.Struct("key" / c.PascalString(c.ZigZag, "utf-8"), "value" / NULLABLE_BYTES)),
    ),
)

CONTROL_RECORD_KEY = c.Struct(
    "version" / c.Int16sb,
    "type" / c.Enum(
        c.Int16sb, ABORT=0, COMMIT=1, LEADER_CHANGE=2, SNAPSHOT_HEADER=3, SNAPSHOT_FOOTER=4, KRAFT_VERSION=5, KRAFT_VOTERS=6
    ),
)  # fmt: skip

END_TRANSACTION_MARKER = c.Struct("version" / c.Int16sb, "coordinator_epoch" / c.Int32sb)  # the value of an ABORT or a COMMIT

# -- <offset>.index, <offset>.timeindex, <offset>.txnindex: entries, one after the other -----------------------------------

OFFSET_INDEX_ENTRY = c.Struct(
    "relative_offset" / c.Int32sb,  # of the batch's last record, from the segment's base offset
    "position" / c.Int32sb,
)

TIME_INDEX_ENTRY = c.Struct(
    "timestamp" / c.Int64sb,  # the largest so far
    "relative_offset" / c.Int32sb,
)

TRANSACTION_INDEX_ENTRY = c.Struct(
    "version" / c.Int16sb,
    "producer_id" / c.Int64sb,
    "first_offset" / c.Int64sb,
    "last_offset" / c.Int64sb,  # the marker's
    "last_stable_offset" / c.Int64sb,
)

# -- <offset>.snapshot: the producers, up to before the offset -------------------------------------------------------------

PRODUCER_SNAPSHOT_ENTRY = c.Struct(
    "producer_id" / c.Int64sb,
    "producer_epoch" / c.Int16sb,
    "last_sequence" / c.Int32sb,
    "last_offset" / c.Int64sb,  # -1: no batch is known
    "offset_delta" / c.Int32sb,  # from the first to the last offset of the last batch
    "timestamp" / c.Int64sb,
    "coordinator_epoch" / c.Int32sb,
    "current_transaction_first_offset" / c.Int64sb,  # -1: no transaction is open
)

PRODUCER_SNAPSHOT = c.Struct(
    "version" / c.Int16sb,
    "crc" / c.Int32ub,  # CRC-32C of what follows
    "entries" / c.PrefixedArray(c.Int32sb, PRODUCER_SNAPSHOT_ENTRY),
)

# -- text: checkpoints, partition.metadata -------------------------------------------------------------------------------

_LINE = c.NullTerminated(c.GreedyString("utf-8"), term=b"\n")
_NUMBER = c.ExprAdapter(_LINE, lambda line, _: int(line), lambda number, _: str(number))


def _checkpoint(**fields: type) -> c.Construct:
    """A version line, a line with the number of entries, an entry a line: its fields with a space between them."""

    def parse(line: str, _: object) -> c.Container:
        values = line.split(" ")
        if len(values) != len(fields):
            raise c.ValidationError(f"{len(values)} fields, not {len(fields)}")
        return c.Container({name: kind(value) for (name, kind), value in zip(fields.items(), values, strict=True)})

    entry = c.ExprAdapter(_LINE, parse, lambda entry, _: " ".join(str(entry[name]) for name in fields))
    return c.Struct("version" / _NUMBER, "entries" / c.PrefixedArray(_NUMBER, entry))


LEADER_EPOCH_CHECKPOINT = _checkpoint(epoch=int, start_offset=int)
OFFSET_CHECKPOINT = _checkpoint(topic=str, partition=int, offset=int)  # the four of a log directory

PARTITION_METADATA = c.Struct(
    c.Const(b"version: "),
    "version" / _NUMBER,
    c.Const(b"topic_id: "),
    "topic_id" / c.GreedyString("utf-8"),  # 22 characters of base64
)
