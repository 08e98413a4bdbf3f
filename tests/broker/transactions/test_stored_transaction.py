"""What is stored of a transaction, against the codec of Kafka's messages."""

from __future__ import annotations

import random

import pytest

from broker.coordination.records import encode_key as encode_any_key
from broker.transactions.state import RESTING, TransactionState
from broker.transactions.stored_transaction import decode_value, encode_key, encode_value, without_tags
from broker.transactions.transaction import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Transaction
from protocol.errors import DecodeError
from protocol.messages.stored.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from protocol.messages.stored.version_prefix import encode_with_version


def some_transaction(source: random.Random) -> Transaction:
    state = source.choice(list(TransactionState))
    topics = {} if state in RESTING else {f"{'ö' * source.choice((1, 80))}{number}": number for number in range(source.choice((1, 2, 200)))}
    return Transaction(
        producer_id=source.randrange(2**63),
        previous_producer_id=source.choice((NO_PRODUCER_ID, 0, 2**63 - 1)),
        next_producer_id=source.choice((NO_PRODUCER_ID, 0, 2**63 - 1)),
        producer_epoch=source.choice((0, 32767)),
        last_producer_epoch=NO_PRODUCER_EPOCH,
        timeout_ms=source.choice((0, 60_000, 2**31 - 1)),
        state=state,
        partitions={topic: frozenset(source.sample(range(1000), number + 1)) for topic, number in topics.items()},
        start_ms=source.choice((-1, 1_750_000_000_000)),
        last_update_ms=1_750_000_000_001,
        client_transaction_version=source.choice((0, 1, 2)),
    )


def message_of(transaction: Transaction, version: int) -> TransactionLogValue:
    partitions = [PartitionsSchema(topic=topic, partition_ids=sorted(indexes)) for topic, indexes in transaction.partitions.items()]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.value,
        transaction_partitions=None if transaction.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if version:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_transaction_version
    return value


@pytest.mark.parametrize("version", [0, 1])
def test_values_are_those_of_the_codec(version: int):
    source = random.Random(version)
    for _ in range(60):
        transaction = some_transaction(source)

        encoded = encode_value(transaction, version)

        assert encoded == encode_with_version(message_of(transaction, version), version)
        assert decode_value(encoded) == (transaction if version else without_tags(transaction))


@pytest.mark.parametrize("name", ["t", "ö" * 150, "x" * 32_767])
def test_keys_are_those_of_the_codec(name: str):
    key = TransactionLogKey(transactional_id=name)

    assert encode_key(key) == encode_any_key(key)


def test_an_id_that_no_key_holds_is_an_error():
    with pytest.raises(ValueError, match="32768"):
        encode_key(TransactionLogKey(transactional_id="x" * 32_768))


def test_a_state_that_no_record_has_is_an_error():
    with pytest.raises(DecodeError):
        decode_value(encode_with_version(TransactionLogValue(transaction_status=9), 1))
