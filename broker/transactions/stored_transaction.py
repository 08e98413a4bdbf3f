"""The value of a record of `__transaction_state`: a Transaction as it is stored.

Version 0 has no tagged fields: it is written at transaction.version 0, version 1 above it. Where transaction.version was lowered to 0,
clients that have heard of 2 go on by its rules for a while. Their records keep the tags, without which the next coordinator could not tell
a retry of theirs, or a late marker. Kafka 4.3.1 fails to write them: their requests fail, and the id stays pending until the next load.

Each change of an id is such a record, so version 1 is written without a message between, which takes a quarter of the time; the message is
what both versions are read by.

Source: org.apache.kafka.coordinator.transaction.TransactionLog.
"""

from __future__ import annotations

import struct

from broker.transactions.state import EMPTY
from broker.transactions.transaction import EPOCH_BUMP_VERSION, NO_PRODUCER_ID, TAGS_VERSION, Partitions, Transaction, from_value
from protocol.errors import DecodeError
from protocol.messages.stored.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from protocol.messages.stored.version_prefix import decode_with_version, encode_with_version
from protocol.uvarint import uvarint

NULL_ARRAY = b"\x00"
NO_TAGS = b"\x00"

_KEY = struct.Struct(">hh")  # the record's type, the size of the id
_HEAD = struct.Struct(">hqhib")  # version, producer id and epoch, timeout, state
_TIMES = struct.Struct(">qqb")  # last update, start, count of tags
_PRODUCER_ID_TAG = struct.Struct(">bbq")  # tag, size, value
_VERSION_TAG = struct.Struct(">bbh")
_INDEX = struct.Struct(">i")

PREVIOUS_PRODUCER_ID, NEXT_PRODUCER_ID, CLIENT_TRANSACTION_VERSION = 0, 1, 2  # the tags


def record_version(transaction: Transaction, transaction_version: int) -> int:
    """The version of its record, at the finalized transaction version."""
    return int(transaction_version >= TAGS_VERSION or transaction.client_transaction_version >= EPOCH_BUMP_VERSION)


def encode_key(key: TransactionLogKey) -> bytes:
    """The key of a record. ValueError for an id of more than 32,767 bytes."""
    name = key.transactional_id.encode()
    if len(name) > 0x7FFF:
        raise ValueError(f"a transactional id of {len(name)} bytes")
    return _KEY.pack(0, len(name)) + name


def encode_value(transaction: Transaction, version: int) -> bytes:
    """The value of a record, its version before it."""
    if version == 0:
        return encode_with_version(_message_without_tags(transaction), 0)
    head = _HEAD.pack(version, transaction.producer_id, transaction.producer_epoch, transaction.timeout_ms, transaction.state)
    count, tags = 0, b""
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        count, tags = 1, _PRODUCER_ID_TAG.pack(PREVIOUS_PRODUCER_ID, 8, transaction.previous_producer_id)
    if transaction.next_producer_id != NO_PRODUCER_ID:
        count, tags = count + 1, tags + _PRODUCER_ID_TAG.pack(NEXT_PRODUCER_ID, 8, transaction.next_producer_id)
    if transaction.client_transaction_version:
        count, tags = count + 1, tags + _VERSION_TAG.pack(CLIENT_TRANSACTION_VERSION, 2, transaction.client_transaction_version)
    times = _TIMES.pack(transaction.last_update_ms, transaction.start_ms, count)
    partitions = NULL_ARRAY if transaction.state is EMPTY else _encode_partitions(transaction.partitions)
    return head + partitions + times + tags


def decode_value(value: bytes) -> Transaction:
    """What a record says, in any version. DecodeError for a malformed one, or a state that no record has."""
    try:
        return from_value(decode_with_version(TransactionLogValue, value)[0])
    except ValueError as e:
        raise DecodeError(str(e)) from e


def without_tags(transaction: Transaction) -> Transaction:
    """What is left of it in a record of version 0."""
    return transaction._replace(previous_producer_id=NO_PRODUCER_ID, next_producer_id=NO_PRODUCER_ID, client_transaction_version=0)


def _encode_partitions(partitions: Partitions) -> bytes:
    encoded = uvarint(len(partitions) + 1)
    for topic, indexes in partitions.items():
        name = topic.encode()
        encoded += uvarint(len(name) + 1) + name + uvarint(len(indexes) + 1)
        encoded += b"".join(map(_INDEX.pack, sorted(indexes))) + NO_TAGS
    return encoded


def _message_without_tags(transaction: Transaction) -> TransactionLogValue:
    stored = [PartitionsSchema(topic=topic, partition_ids=sorted(indexes)) for topic, indexes in transaction.partitions.items()]
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.value,
        transaction_partitions=None if transaction.state is EMPTY else stored,
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
