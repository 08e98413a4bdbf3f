"""What the broker writes is what `storage/formats.py` declares, after appends, a kill with a torn tail, and a truncation."""

from __future__ import annotations

import shutil
from pathlib import Path

import construct as c
import pytest

from protocol.compression import Compression
from protocol.records import (
    ControlRecordType,
    SimpleRecord,
    build_batch,
    build_control_batch,
    encode_end_transaction_value,
    iterate_records,
)
from protocol.uuids import uuid_to_text
from storage import formats
from storage.checkpoint import write_offset_checkpoint
from storage.files import TopicPartition
from storage.log import Log
from storage.meta_properties import write_partition_metadata
from storage.validation import AppendOrigin
from tests.storage.conftest import NOW_MS, TOPIC_ID, OpenLog
from tests.storage.declared_files import assert_files_agree
from tests.support.imports import all_imports, reachable
from tests.support.transactions import verified

SETTINGS = {"segment_bytes": 4000, "index_interval_bytes": 300}
RECORDS = [
    SimpleRecord(b"key", b"v" * 300, (("h", b"x"), ("empty", None)), NOW_MS),
    SimpleRecord(None, b"", (), NOW_MS - 5000),
    SimpleRecord(b"", None, (("ä", b""),), NOW_MS + 70_000),
]


def fill(log: Log, *, leader_epoch: int = 0, producer_epoch: int = 0) -> None:
    """Every codec, timestamps out of order, an idempotent producer, one that commits and one that aborts."""
    for number in range(60):
        producer = {"producer_id": 7, "producer_epoch": producer_epoch, "base_sequence": number // 5 * 3} if number % 5 == 0 else {}
        records = [record._replace(timestamp=record.timestamp + number * 7919 % 5000) for record in RECORDS]
        _append(log, build_batch(records, compression=Compression(number % 4 + 1 if number % 7 else 0), **producer), leader_epoch)
    for producer_id, end in ((8, ControlRecordType.COMMIT), (9, ControlRecordType.ABORT)):
        fields = {"producer_id": producer_id, "producer_epoch": producer_epoch}
        _append(log, build_batch(RECORDS, base_sequence=0, is_transactional=True, **fields), leader_epoch)
        marker = build_control_batch(end, encode_end_transaction_value(3), timestamp=NOW_MS, **fields)
        _append(log, marker, leader_epoch, AppendOrigin.COORDINATOR)


def _append(log: Log, data: bytearray, leader_epoch: int, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    log.append_as_leader(memoryview(data), leader_epoch=leader_epoch, now_ms=NOW_MS, origin=origin, transaction=verified(log, data))


def test_files_of_a_clean_stop_agree(open_log: OpenLog, directory: Path) -> None:
    log = open_log(**SETTINGS)
    fill(log)
    fill(log, leader_epoch=4, producer_epoch=1)
    log.close()

    assert len(log.segments) > 3
    assert len(list(directory.glob("*.txnindex"))) == 2
    assert_files_agree(directory)


@pytest.mark.parametrize("torn_bytes", [1, 100, 2000])
def test_files_agree_after_a_kill_that_tore_the_tail(open_log: OpenLog, directory: Path, torn_bytes: int) -> None:
    fill(open_log(**SETTINGS))
    last = max(directory.glob("*.log"))
    with last.open("r+b") as file:
        file.truncate(max(last.stat().st_size - torn_bytes, 0))

    recovered = open_log(**SETTINGS)
    fill(recovered, leader_epoch=1, producer_epoch=1)
    recovered.close()

    assert_files_agree(directory)


def test_files_agree_after_a_truncation(open_log: OpenLog, directory: Path) -> None:
    log = open_log(**SETTINGS)
    fill(log)
    log.truncate_to(log.log_end_offset // 2)
    fill(log, leader_epoch=2, producer_epoch=1)
    log.close()

    assert_files_agree(directory)


def test_files_that_disagree_are_found(open_log: OpenLog, directory: Path, tmp_path: Path) -> None:
    log = open_log(**SETTINGS)
    fill(log)
    log.close()
    for suffix, position in ((".log", 5), (".log", 100), (".index", 7), (".timeindex", 3), (".snapshot", 8), (".txnindex", 20)):
        copy = tmp_path / "copy"
        shutil.copytree(directory, copy)
        path = max(copy.glob(f"*{suffix}"), key=lambda each: (each.stat().st_size, each.name))
        data = bytearray(path.read_bytes())
        data[position] ^= 0x55
        path.write_bytes(data)

        with pytest.raises((AssertionError, c.ConstructError)):
            assert_files_agree(copy)
        shutil.rmtree(copy)


@pytest.mark.parametrize("compression", list(Compression))
def test_records_are_those_that_the_codec_reads(compression: Compression) -> None:
    data = build_batch(RECORDS, base_offset=10, compression=compression, producer_id=7, producer_epoch=2, base_sequence=5)

    batch = formats.RECORD_BATCH.parse(data)

    assert formats.RECORD_BATCH.build(batch) == data
    assert int(batch.header.attributes.compression) == compression
    if compression is Compression.NONE:
        records = c.Array(len(RECORDS), formats.RECORD).parse(batch.payload)
        found = [
            (batch.header.base_offset + record.offset_delta, batch.header.base_timestamp + record.timestamp_delta, record.key, record.value)
            for record in records
        ]
        assert found == [(record.offset, record.timestamp, record.key, record.value) for record in iterate_records(data)]
        assert [[(header.key, header.value) for header in record.headers] for record in records] == [
            list(record.headers) for record in RECORDS
        ]
        assert b"".join(formats.RECORD.build(record) for record in records) == batch.payload


def test_log_append_time_is_in_the_attributes() -> None:
    attributes = formats.RECORD_BATCH.parse(build_batch(RECORDS, log_append_time_ms=NOW_MS)).header.attributes

    assert str(attributes.timestamp_type) == "LogAppendTime"
    assert not attributes.is_control


def test_offset_checkpoint_is_as_declared(tmp_path: Path) -> None:
    path = tmp_path / "replication-offset-checkpoint"
    write_offset_checkpoint(path, {TopicPartition("a.b_c-1", 0): 5, TopicPartition("t", 12): 2**40})

    checkpoint = formats.OFFSET_CHECKPOINT.parse(path.read_bytes())

    assert [(entry.topic, entry.partition, entry.offset) for entry in checkpoint.entries] == [("a.b_c-1", 0, 5), ("t", 12, 2**40)]
    assert formats.OFFSET_CHECKPOINT.build(checkpoint) == path.read_bytes()


def test_partition_metadata_is_as_declared(tmp_path: Path) -> None:
    write_partition_metadata(tmp_path, TOPIC_ID)

    metadata = formats.PARTITION_METADATA.parse((tmp_path / "partition.metadata").read_bytes())

    assert (metadata.version, metadata.topic_id) == (0, uuid_to_text(TOPIC_ID))


def test_the_broker_does_not_import_the_declarations() -> None:
    """construct takes 46 ms to import."""
    graph = all_imports()
    users = {name for name in graph if {"storage.formats", "storage.inspection"} & reachable(graph, name)}

    assert "storage.inspection" in users
    assert {name for name in users if not name.startswith("barnabas.cli.")} == {"storage.inspection"}  # `barnabas log` shows files by them
