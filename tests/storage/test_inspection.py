"""The files of a log directory, printed. tests/peers/test_dump_log.py compares with kafka-dump-log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from storage import inspection
from storage.checkpoint import write_offset_checkpoint
from storage.files import TopicPartition
from storage.meta_properties import write_partition_metadata
from tests.storage.conftest import NOW_MS, TOPIC_ID, OpenLog, append, append_idempotent

FIRST_LOG = "00000000000000000000.log"


def dump(path: Path, *, prints_data: bool = False) -> list[str]:
    return list(inspection.dump(path, prints_data=prints_data))


def test_a_segment_is_a_line_a_batch_and_a_line_a_record(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    append_idempotent(log, 2147483646, 3)
    log.close()

    lines = dump(directory / FIRST_LOG, prints_data=True)

    assert lines[:2] == [f"Dumping {directory / FIRST_LOG}", "Log starting offset: 0"]
    assert lines[2].startswith("baseOffset: 0 lastOffset: 2 count: 3 baseSequence: 2147483646 lastSequence: 0 producerId: 7 ")
    assert lines[2].endswith("isvalid: true")
    value = "v" * 100
    assert lines[3:] == [
        f"| offset: {offset} CreateTime: {NOW_MS} keySize: 1 valueSize: 100 sequence: {sequence} headerKeys: [] key: k payload: {value}"
        for offset, sequence in enumerate((2147483646, 2147483647, 0))
    ]


def test_a_torn_tail_is_counted(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    for _ in range(3):
        append(log)
    log.close()
    path = directory / FIRST_LOG
    whole = path.read_bytes()

    path.write_bytes(whole[:-5])
    assert dump(path)[-1] == f"Found {len(whole) // 3 - 5} invalid bytes at the end of {FIRST_LOG}"
    path.write_bytes(whole + bytes(40))
    assert dump(path)[-1] == f"Found 40 invalid bytes at the end of {FIRST_LOG}"


def test_a_wrong_checksum_and_malformed_records_are_told(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    append(log)
    log.close()
    path = directory / FIRST_LOG
    data = bytearray(path.read_bytes())
    data[61] = 0x7F  # the first record's length
    path.write_bytes(data)

    lines = dump(path, prints_data=True)

    assert lines[2].endswith("isvalid: false")
    assert lines[3].startswith("| malformed records: ")


def test_an_index_ends_before_the_zeros_of_a_preallocated_one(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000100.index"
    path.write_bytes(bytes.fromhex("00000007 00001388 00000014 0000270f") + bytes(80))

    assert dump(path)[1:] == ["offset: 107 position: 5000", "offset: 120 position: 9999"]


def test_text_files_are_printed_field_by_field(tmp_path: Path) -> None:
    write_offset_checkpoint(tmp_path / "recovery-point-offset-checkpoint", {TopicPartition("t", 3): 17})
    write_partition_metadata(tmp_path, TOPIC_ID)
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n4 19\n")

    lines = [line for path in inspection.files_of(tmp_path) for line in dump(path)[1:]]

    assert lines == [
        "epoch: 0 startOffset: 0",
        "epoch: 4 startOffset: 19",
        "version: 0 topicId: AAECAwQFBgcICQoLDA0ODw",
        "topic: t partition: 3 offset: 17",
    ]


def test_unknown_and_torn_files_are_errors_and_the_others_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "note.txt").write_text("x")
    (tmp_path / "00000000000000000009.snapshot").write_bytes(b"\x00\x01")
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")

    status = inspection.main([str(tmp_path / "note.txt"), str(tmp_path)])

    printed = capsys.readouterr()
    assert status == 1
    assert "epoch: 0 startOffset: 0" in printed.out
    assert f"unknown file {tmp_path / 'note.txt'}" in printed.err
    assert f"{tmp_path / '00000000000000000009.snapshot'}: " in printed.err


def test_it_runs_by_its_module_s_name(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    append(log)
    log.close()

    printed = subprocess.run(
        [sys.executable, "-m", "storage.inspection", str(directory)], capture_output=True, text=True, check=True
    ).stdout

    assert f"Dumping {directory / FIRST_LOG}\nLog starting offset: 0\nbaseOffset: 0 " in printed
