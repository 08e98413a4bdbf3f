"""Kafka's own kafka-dump-log reads our log directories: segments, indexes, snapshots, after appends, rolls, recovery and retention. What
`storage/inspection.py` prints of them is what it prints."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from config.topic import LogConfig
from protocol.compression import Compression
from protocol.records import (
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    ControlRecordType,
    SimpleRecord,
    assemble_batch,
    build_batch,
    build_control_batch,
    encode_end_transaction_value,
    read_header,
)
from storage import inspection, log_opener
from storage.log import Log
from storage.validation import AppendOrigin
from tests.support.kafka import java_tool
from tests.support.transactions import verified

NOW_MS = 1_700_000_000_000
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
CONFIG = replace(LogConfig(), segment_bytes=12_000, index_interval_bytes=1000, file_delete_delay_ms=0)
PRODUCER_ID = 42
INDEX_SUFFIXES = (".index", ".timeindex")
COMPLAINTS = ("Mismatches in", "is followed by", "isvalid: false", "Found timestamp mismatch", "Found out of order", "Exception")
# Kafka 4.3.1 says so of every segment that does not begin at offset 0, its own included.
HARMLESS = re.compile(r"\s*-1 is followed by \d+")


def open_log(directory: Path, *, was_clean_stop: bool = False) -> Log:
    directory.mkdir(exist_ok=True)
    return log_opener.open_log(directory, "t", 0, bytes(16), CONFIG, now_ms=NOW_MS, was_clean_stop=was_clean_stop)


def fill(log: Log, *, producer_epoch: int = 0) -> None:
    """Every codec, one to five records a batch, timestamps out of order, an idempotent and an aborting transactional producer."""
    for number in range(400):
        records = [
            SimpleRecord(b"key%d" % number, b"v" * (37 * number % 900), (("h", b"x"),), NOW_MS + (number * 7919) % 5000 + index)
            for index in range(1 + number % 5)
        ]
        idempotent = {"producer_id": PRODUCER_ID, "producer_epoch": producer_epoch, "base_sequence": number // 7}
        fields = idempotent if number % 7 == 0 else {}
        if fields:
            records = records[:1]
        codec = Compression(number % 5)
        log.append_as_leader(memoryview(build_batch(records, compression=codec, **fields)), leader_epoch=number // 200, now_ms=NOW_MS)


def abort_a_transaction(log: Log, producer_id: int) -> None:
    record = SimpleRecord(b"k", b"v", (), NOW_MS)
    data = build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(memoryview(data), leader_epoch=1, now_ms=NOW_MS, transaction=verified(log, data))
    value = encode_end_transaction_value(0)
    marker = build_control_batch(ControlRecordType.ABORT, value, timestamp=NOW_MS, producer_id=producer_id, producer_epoch=0)
    log.append_as_leader(memoryview(marker), leader_epoch=1, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


def dump(paths: list[Path], *options: str) -> str:
    result = java_tool(DUMP_LOG, "--files", ",".join(map(str, paths)), *options)
    output = result.stdout + result.stderr
    assert result.returncode == 0, output
    return output


def files(directory: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix in suffixes)


def assert_accepted(directory: Path, end_offset: int) -> None:
    """The tool finds every batch valid, and the indexes agree with the segments and are sane."""
    everything = dump(files(directory, ".log", *INDEX_SUFFIXES), "--deep-iteration")
    complaints = [line for line in everything.splitlines() if any(word in line for word in COMPLAINTS)]
    assert [line for line in complaints if not HARMLESS.fullmatch(line)] == []
    assert max(int(offset) for offset in re.findall(r"lastOffset: (\d+)", everything)) == end_offset - 1
    indexes = files(directory, *INDEX_SUFFIXES)
    sanity = dump(indexes, "--index-sanity-check")
    assert sanity.count("passed sanity check") + sanity.count("is empty.") == len(indexes)


def test_clean_stop_leaves_what_kafka_accepts(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log)
    log.close()

    assert len(log.segments) > 3
    assert_accepted(tmp_path / "t-0", log.log_end_offset)


def test_recovery_after_a_kill_leaves_what_kafka_accepts(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    fill(open_log(directory))
    last = files(directory, ".log")[-1]
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 5)

    recovered = open_log(directory)
    fill(recovered, producer_epoch=1)
    recovered.close()

    assert_accepted(directory, recovered.log_end_offset)


def test_truncation_and_retention_leave_what_kafka_accepts(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    log = open_log(directory)
    fill(log)
    log.truncate_to(log.log_end_offset * 2 // 3)
    log.append_as_leader(memoryview(build_batch([SimpleRecord(b"k", b"v", (), NOW_MS)])), leader_epoch=3, now_ms=NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    log.update_config(replace(CONFIG, retention_bytes=20_000))
    log.delete_old_segments(NOW_MS)
    log.close()

    assert log.log_start_offset > 0
    assert_accepted(directory, log.log_end_offset)


def test_producer_snapshot_is_read_by_kafka(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    fill(log)
    log.close()

    output = dump(files(tmp_path / "t-0", ".snapshot")[-1:])

    assert f"producerId: {PRODUCER_ID} producerEpoch: 0" in output
    assert "lastSequence: 57" in output


def test_transaction_index_is_read_by_kafka(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    abort_a_transaction(log, 5)
    abort_a_transaction(log, 6)
    log.close()

    output = dump(files(tmp_path / "t-0", ".txnindex"))

    entries = re.findall(r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", output)
    assert entries == [("5", "0", "1", "2"), ("6", "2", "3", "4")]


def append_what_is_rare(log: Log) -> None:
    """No key, no value, headers, bytes beyond ASCII, the broker's time, sequences that wrap, an open transaction, a tombstone's horizon."""
    records = [
        SimpleRecord(None, None, (), NOW_MS),
        SimpleRecord(b"", b"", (("a", None), ("b", b"x")), NOW_MS - 1),
        SimpleRecord(b"k", "ä €".encode(), (("ä", b""),), NOW_MS + 1),
    ]
    fields = {"producer_id": PRODUCER_ID + 1, "producer_epoch": 3}
    for data in (
        build_batch(records, compression=Compression.ZSTD),
        build_batch(records, base_sequence=2**31 - 2, **fields),
        build_batch(records, base_sequence=0, is_transactional=True, producer_id=PRODUCER_ID + 2, producer_epoch=0),
    ):
        log.append_as_leader(memoryview(data), leader_epoch=1, now_ms=NOW_MS, transaction=verified(log, data))
    for flag in (LOG_APPEND_TIME_FLAG, DELETE_HORIZON_FLAG):
        header = read_header(data := build_batch(records, base_offset=log.log_end_offset))
        flagged = assemble_batch(header._replace(attributes=header.attributes | flag), memoryview(data)[HEADER_SIZE:])
        log.append_as_follower(memoryview(flagged), now_ms=NOW_MS)


def test_inspection_prints_what_kafka_prints(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    log = open_log(directory)
    fill(log)
    append_what_is_rare(log)
    abort_a_transaction(log, 5)
    log.close()
    torn = max(directory.glob("*.log"))
    torn.write_bytes(torn.read_bytes()[:-7])
    (directory / "00000000000000000000.timeindex").write_bytes(b"")
    paths = [path for path in inspection.files_of(directory) if path.suffix]
    for options in ((), ("--print-data-log",)):
        theirs = java_tool(DUMP_LOG, "--files", ",".join(map(str, paths)), *options).stdout.splitlines()

        ours = [line for path in paths for line in inspection.dump(path, prints_data=bool(options))]

        assert len(ours) > 400
        assert ours == theirs
