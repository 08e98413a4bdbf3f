"""Kafka's checkpoint text files, read back whole or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.checkpoint import read_offset_checkpoint, write_offset_checkpoint
from storage.errors import CorruptFileError
from storage.files import TopicPartition

OFFSETS = {TopicPartition("orders", 0): 12, TopicPartition("a-b.c_d", 30): 2**63 - 1}


def test_offsets_are_written_in_kafkas_format(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"

    write_offset_checkpoint(path, OFFSETS)

    assert path.read_bytes() == b"0\n2\norders 0 12\na-b.c_d 30 9223372036854775807\n"


def test_offsets_survive_a_kill_after_the_write(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    write_offset_checkpoint(path, {TopicPartition("orders", 0): 1})
    write_offset_checkpoint(path, OFFSETS)

    assert read_offset_checkpoint(path) == OFFSETS


def test_an_absent_file_is_an_empty_table(tmp_path: Path) -> None:
    assert read_offset_checkpoint(tmp_path / "absent") == {}


def test_an_empty_table_is_written_and_read(tmp_path: Path) -> None:
    write_offset_checkpoint(tmp_path / "checkpoint", {})

    assert (tmp_path / "checkpoint").read_bytes() == b"0\n0\n"
    assert read_offset_checkpoint(tmp_path / "checkpoint") == {}


def test_a_file_emptied_by_a_power_cut_is_an_empty_table(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").touch()

    assert read_offset_checkpoint(tmp_path / "checkpoint") == {}


@pytest.mark.parametrize(
    "content",
    ["0", "0\n", "1\n1\norders 0 12\n", "0\n2\norders 0 12\n", "0\n0\norders 0 12\n", "0\n1\norders 0\n", "0\n1\norders 0 x\n", "x\n0\n"],
)
def test_a_malformed_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "checkpoint").write_text(content)

    with pytest.raises(CorruptFileError, match="malformed checkpoint"):
        read_offset_checkpoint(tmp_path / "checkpoint")
