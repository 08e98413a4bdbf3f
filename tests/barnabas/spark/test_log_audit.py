"""The audit of log directories: nothing to say of what both kinds of servers have written, and a finding for each thing that is wrong."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.protocol.checksum import crc32c
from barnabas.protocol.records import CRC_START, iterate_headers
from barnabas.spark.log.audit import Audit
from tests.barnabas.spark.test_log_directories import TOPIC, Written, written

__all__ = ["written"]

Damage = Callable[[Path], None]


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def findings(directory: Path) -> list[str]:
    return [f"{found.file}: {found.problem}" for found in Audit(directory, TOPIC, 0).run()]


def test_directories_of_both_kinds_are_whole(written: Written) -> None:
    assert findings(written.directory / f"{TOPIC}-0") == []
    assert findings(written.directory / f"{TOPIC}-1") == []


def in_batch(number: int, position: int, content: bytes) -> Damage:
    """Bytes of a batch of the first segment; the CRC is made to fit."""

    def damage(directory: Path) -> None:
        path = segments(directory)[0]
        data = bytearray(path.read_bytes())
        at, header = list(iterate_headers(memoryview(bytes(data))))[number]
        data[at + position : at + position + len(content)] = content
        struct.pack_into(">I", data, at + 17, crc32c(bytes(data[at + CRC_START : at + header.size_bytes])))
        path.write_bytes(data)

    return damage


def flip(directory: Path) -> None:
    path = segments(directory)[0]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def cut_first_segment(directory: Path) -> None:
    path = segments(directory)[0]
    path.write_bytes(path.read_bytes()[:-10])


def remove_second_segment(directory: Path) -> None:
    segments(directory)[1].unlink()


def repeat_first_batch(directory: Path) -> None:
    path = segments(directory)[0]
    data = path.read_bytes()
    (_, first), *_ = iterate_headers(memoryview(data))
    path.write_bytes(data + data[: first.size_bytes])


def swap_indexes(directory: Path) -> None:
    """An entry amid a batch, and two in the wrong order that are both of a segment's first batch."""
    first, *others = segments(directory)
    first.with_suffix(".index").write_bytes(struct.pack(">ii", 1, 7))
    wide = next(path for path in others if next(iterate_headers(memoryview(path.read_bytes())))[1].records_count >= 3)
    wide.with_suffix(".index").write_bytes(struct.pack(">iiii", 2, 0, 1, 0))


def confuse_times(directory: Path) -> None:
    segments(directory)[0].with_suffix(".timeindex").write_bytes(struct.pack(">qiqi", 5, 1, 4, 2))


def invent_an_abort(directory: Path) -> None:
    segments(directory)[0].with_suffix(".txnindex").write_bytes(struct.pack(">hqqqq", 0, 77, 1, 2, 2))


def confuse_epochs(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n5 0\n3 10\n")


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (flip, r"\.log: the CRC does not fit"),
        (cut_first_segment, r"\.log: \d+ bytes after the last whole batch"),
        (remove_second_segment, r"\.log: offsets \d+ to \d+ are missing, and no compaction came so far"),
        (repeat_first_batch, r"\.log: the offset goes back: \d+ or more is expected"),
        (in_batch(0, 57, struct.pack(">i", 1)), r"\.log: the records are not what the header says"),
        (in_batch(0, 12, struct.pack(">i", 5)), r"\.log: leader epoch 0 comes after 5"),
        (in_batch(0, 0, struct.pack(">q", 1 << 40)), r"\.log: the offset goes back"),
        (swap_indexes, r"0\.index: byte 7 of the log is no batch with that offset"),
        (swap_indexes, r"\.index: the entries do not ascend"),
        (confuse_times, r"\.timeindex: the entries do not ascend"),
        (invent_an_abort, r"\.txnindex: there is no abort marker of producer 77 at that offset"),
        (confuse_epochs, r"leader-epoch-checkpoint: epoch 3 at 10 comes after 5 at 0"),
        (confuse_epochs, r"\.log: leader epoch 0 is not in leader-epoch-checkpoint"),
    ],
)
def test_what_is_wrong_is_found(damage: Damage, says: str, written: Written, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(written.directory / f"{TOPIC}-0", tmp_path / "data" / f"{TOPIC}-0"))
    damage(directory)

    found = findings(directory)

    assert any(re.search(says, each) for each in found), found[:5]


def test_a_gap_below_what_was_cleaned_is_compaction_s(written: Written, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(written.directory / f"{TOPIC}-0", tmp_path / "data" / f"{TOPIC}-0"))
    (directory.parent / "cleaner-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 100000\n")
    remove_second_segment(directory)

    assert findings(directory) == []


def test_a_sequence_that_is_left_out_is_found(written: Written, tmp_path: Path) -> None:
    """Of a transaction's producer: its batch is in one of the last segments."""
    directory = Path(shutil.copytree(written.directory / f"{TOPIC}-0", tmp_path / "data" / f"{TOPIC}-0"))
    for path in segments(directory):
        data = path.read_bytes()
        found = [(at, header) for at, header in iterate_headers(memoryview(data)) if header.is_transactional and not header.is_control]
        if found:
            at, header = found[0]
            again = bytearray(data[at : at + header.size_bytes])
            struct.pack_into(">i", again, 53, header.base_sequence + 100)
            struct.pack_into(">I", again, 17, crc32c(bytes(again[CRC_START:])))
            path.write_bytes(data[: at + header.size_bytes] + bytes(again))
            break

    assert any(re.search(rf"producer {header.producer_id} has sequence \d+, and \d+ is expected", each) for each in findings(directory))
