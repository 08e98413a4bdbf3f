"""Transactions while the finalized transaction.version changes, and what records have by each version."""

from __future__ import annotations

import pytest

from protocol.messages.stored.transaction_records import PartitionsSchema
from tests.broker.transactions.room import TIMEOUT_MS, Room, begun, exhausted


def test_producer_that_was_fenced_below_version_2_is_told_so_by_the_rules_of_2():
    """Kafka takes its epoch for that of a retry, and says that its transaction, which was aborted, is committed."""
    room = begun(1)
    room.init("t")
    assert room.init("t") == "NONE 1000:2"
    room.add("t", "1000:2", "a-0")
    room.end("t", "1000:2", commit=True, version=0)
    room.version = 2

    assert room.end("t", "1000:1", commit=True, version=2) == "PRODUCER_FENCED"


def test_upgrade_in_the_middle_of_a_transaction():
    room = begun(0)
    room.version = 2

    assert room.end("t", "1000:0", commit=True, version=0) == "NONE"
    assert room.add("t", "1000:0", "a-0") == "NONE"
    assert room.end("t", "1000:0", commit=True) == "NONE 1000:1"


@pytest.mark.parametrize("version", [0, 1])
def test_downgrade_in_the_middle_of_a_transaction(version: int):
    """Kafka fails an EndTxn of version 5 at 0, and leaves the id pending until the next load."""
    room = begun(2)
    room.version = version

    assert room.add("t", "1000:0", "b-0", version=2) == "NONE"
    assert room.end("t", "1000:0", commit=False, version=2) == "NONE 1000:1"
    assert room.markers.sent == ["t abort 1000:1 v2 epoch 0 a-0 b-0"]
    assert room.add("t", "1000:0", "b-0", version=2) == "PRODUCER_FENCED", "a late batch must not begin the next transaction"
    room.elect()
    assert room.end("t", "1000:0", commit=False, version=2) == "NONE 1000:1", "a retry"


@pytest.mark.parametrize("version", [0, 1])
def test_a_decided_outcome_is_written_by_the_rules_of_its_client_after_a_downgrade_and_a_failover(version: int):
    """Else a late marker of it could end the producer's next transaction."""
    room = begun(2, is_holding_markers=True)
    room.version = version
    room.end("t", "1000:0", commit=True, version=2)

    room.elect()
    room.markers.write_all()

    assert room.markers.sent == ["t commit 1000:1 v2 epoch 0 a-0", "t commit 1000:1 v2 epoch 1 a-0"]
    assert room.state("t") == "CompleteCommit 1000:1"
    assert room.end("t", "1000:0", commit=True, version=2) == "NONE 1000:1", "a retry"


def test_a_client_that_has_heard_of_the_downgrade_goes_on_by_the_lower_rules():
    room = begun(2)
    room.version = 0
    room.end("t", "1000:0", commit=True, version=2)

    assert room.add("t", "1000:1", "a-0", version=0) == "NONE"
    assert room.end("t", "1000:1", commit=True, version=0) == "NONE"
    assert room.end("t", "1000:1", commit=True, version=0) == "NONE", "a retry"
    assert room.markers.sent[-1] == "t commit 1000:1 v0 epoch 0 a-0"


@pytest.mark.parametrize("version", [0, 1])
def test_transaction_of_a_client_of_version_2_that_times_out_after_a_downgrade_is_not_committed(version: int):
    room = begun(2)
    room.version = version
    room.clock.advance(TIMEOUT_MS + 1)
    room.sweep()

    assert room.end("t", "1000:0", commit=True, version=2) == "PRODUCER_FENCED"
    assert room.markers.sent == ["t abort 1000:1 v0 epoch 0 a-0"]


def test_downgrade_between_outcome_and_completion_keeps_the_new_producer_id():
    room = exhausted(2, is_holding_markers=True)
    room.end("t", "7:32766", commit=True)
    room.version = 0

    room.markers.write_all()

    assert room.state("t") == "CompleteCommit 1000:0"
    room.elect()
    assert room.state("t") == "CompleteCommit 1000:0"


def test_records_below_version_1_have_no_tagged_fields_but_those_of_a_client_of_version_2():
    room = Room(0)
    room.init("t")
    room.add("t", "1000:0", "a-0", version=0)
    room.end("t", "1000:0", commit=True, version=0)
    room.add("t", "1000:0", "a-0", version=2)

    values = [value for _, value in room.records() if value is not None]

    assert [value.transaction_status for value in values] == [0, 1, 2, 4, 1]
    assert [(value.previous_producer_id, value.client_transaction_version) for value in values] == [(-1, 0)] * 4 + [(1000, 2)]


def test_records_have_null_for_the_partitions_of_an_empty_id_alone():
    room = begun()
    room.end("t", "1000:0", commit=True)

    found = [value.transaction_partitions for _, value in room.records() if value is not None]

    a_0 = [PartitionsSchema(topic="a", partition_ids=[0])]
    assert found == [None, a_0, a_0, []]
