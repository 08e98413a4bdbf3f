"""Metadata that this broker does not act on is kept under Kafka's key, and comes back in snapshots, whoever reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.metadata.cluster_state import ClusterState
from broker.metadata.record_format import build_metadata_batch, read_metadata_batches
from broker.metadata.snapshot import read_newest_snapshot
from broker.metadata.snapshot_writer import snapshot_batches, state_records, write_snapshot
from protocol.messages.stored import metadata_records as records
from protocol.messages.stored.metadata_records import (
    RegisterControllerRecord,
    decode_metadata_record,
)
from protocol.records import SimpleRecord, append_record, build_batch_of, iterate_records
from storage.errors import StorageError
from tests.broker.metadata.room import registration

ID = bytes(15) + b"\x01"
OTHER_ID = bytes(15) + b"\x02"


KEPT: list[Any] = [
    RegisterControllerRecord(controller_id=3, incarnation_id=ID),
    RegisterControllerRecord(controller_id=4, incarnation_id=ID),
]


def replayed(*changes: Any) -> ClusterState:
    state = ClusterState()
    for record in changes:
        state.replay(record)
    return state


def test_every_kind_comes_back_in_a_snapshot(tmp_path: Path) -> None:
    state = replayed(*KEPT)

    write_snapshot(tmp_path, b"".join(snapshot_batches(state_records(state), epoch=1, last_timestamp=0, now_ms=0)), 10, 1)
    snapshot = read_newest_snapshot(tmp_path)

    assert snapshot is not None and snapshot.records == KEPT
    assert list(replayed(*snapshot.records).kept) == KEPT


def test_a_later_record_of_the_same_key_takes_its_place() -> None:
    state = replayed(*KEPT)
    before = state.copy()
    change = RegisterControllerRecord(controller_id=3, incarnation_id=OTHER_ID)

    state.replay(change)

    assert list(state.kept) == [change, KEPT[1]]
    assert list(before.kept) == KEPT


def test_a_transaction_that_is_aborted_keeps_nothing() -> None:
    state = replayed(records.BeginTransactionRecord(), *KEPT, records.AbortTransactionRecord())

    assert list(state.kept) == []


def test_every_record_type_is_applied_or_leaves_nothing_behind() -> None:
    """One type that nobody applies would end the node, or be missing in every snapshot."""
    begun = replayed(records.BeginTransactionRecord())
    refusals = []
    for kind in records.METADATA_RECORDS.values():
        state = begun.copy() if kind in (records.EndTransactionRecord, records.AbortTransactionRecord) else ClusterState()
        try:
            state.replay(kind())
        except StorageError as error:
            refusals.append(str(error))

    assert [refusal for refusal in refusals if "nobody knows" in refusal] == []


@pytest.mark.parametrize(("level", "version"), [(25, 3), (29, 3), (30, 4)])
def test_a_registration_is_written_at_the_version_of_the_metadata_version(level: int, version: int) -> None:
    record = registration(1, is_fenced=True)[0]

    batch = build_metadata_batch([record], base_offset=0, epoch=1, now_ms=0, level=level)

    (stored,) = iterate_records(memoryview(batch), 0, max_bytes=1 << 20)
    assert stored.value is not None
    assert decode_metadata_record(stored.value) == (record, version)


def test_cordoned_directories_survive_a_snapshot_of_the_level_that_has_them() -> None:
    state = replayed(*registration(1), records.FeatureLevelRecord(name="metadata.version", feature_level=30))
    state.replay(records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=10, cordoned_log_dirs=[ID]))

    batch = build_metadata_batch(list(state_records(state)), base_offset=0, epoch=1, now_ms=0, level=state.metadata_version)
    (read,) = read_metadata_batches(memoryview(batch), "snapshot")

    assert replayed(*read.records).brokers[1].cordoned_log_dirs == (ID,)


@pytest.mark.parametrize("value", [bytes([1, 2, 9, 0]), bytes([1, 99, 0, 0])])  # frame, type, version, tags
def test_a_record_of_a_newer_type_or_version_cannot_be_read(value: bytes) -> None:
    payload = bytearray()
    append_record(payload, SimpleRecord(None, value, (), 0), 0, 0)
    batch = build_batch_of(payload, 1, timestamp=0, base_offset=7, partition_leader_epoch=1)

    with pytest.raises(StorageError, match=f"offset 7 is of type {value[1]} and version {value[2]}"):
        list(read_metadata_batches(memoryview(batch), "log"))
