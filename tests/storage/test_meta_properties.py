"""Identity files of log directories and partitions, in Kafka's formats."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.loading import parse_properties
from protocol.uuids import uuid_from_text
from storage.errors import CorruptFileError, StorageError
from storage.meta_properties import (
    MetaProperties,
    delete_clean_shutdown,
    format_properties,
    read_clean_shutdown,
    read_meta_properties,
    read_partition_metadata,
    write_clean_shutdown,
    write_meta_properties,
    write_partition_metadata,
)

TOPIC_ID = uuid_from_text("9KeQKO-m8Nhhk21nk6htvg")
META = MetaProperties("MkU3OEVBNTcwNTJENDM2Qk", 1, TOPIC_ID)

WRITTEN_BY_KAFKA = """#
#Sat Nov 21 03:17:21 UTC 2026
node.id=1
directory.id=9KeQKO-m8Nhhk21nk6htvg
version=1
cluster.id=MkU3OEVBNTcwNTJENDM2Qk
"""


def test_a_file_that_kafka_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(WRITTEN_BY_KAFKA)

    assert read_meta_properties(tmp_path) == META


@pytest.mark.parametrize("meta", [META, MetaProperties("with = and : #", 7, None)])
def test_meta_properties_survive_a_kill(tmp_path: Path, meta: MetaProperties) -> None:
    write_meta_properties(tmp_path, meta)

    assert read_meta_properties(tmp_path) == meta


def test_an_unformatted_directory_has_no_meta_properties(tmp_path: Path) -> None:
    assert read_meta_properties(tmp_path) is None


@pytest.mark.parametrize(
    ("removed", "added", "why"),
    [
        ("node.id=1\n", "", "no node.id"),
        ("cluster.id=MkU3OEVBNTcwNTJENDM2Qk\n", "", "no cluster.id"),
        ("node.id=1", "node.id=one", "malformed"),
        ("version=1", "version=0", "version 0"),
        ("version=1\n", "", "version 0"),
        ("9KeQKO", "!!", "malformed"),
    ],
)
def test_malformed_meta_properties_are_refused(tmp_path: Path, removed: str, added: str, why: str) -> None:
    (tmp_path / "meta.properties").write_text(WRITTEN_BY_KAFKA.replace(removed, added))

    with pytest.raises(CorruptFileError, match=why):
        read_meta_properties(tmp_path)


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=12), max_size=3))
def test_written_properties_are_read_back(properties: dict[str, str]) -> None:
    kept = {key: value for key, value in properties.items() if not set(key + value) & set("\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")}
    kept = {key: value for key, value in kept.items() if " " not in key}

    assert parse_properties(format_properties(kept)) == kept


def test_the_clean_shutdown_marker_is_kafkas(tmp_path: Path) -> None:
    write_clean_shutdown(tmp_path, broker_epoch=11)

    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":11}'
    assert read_clean_shutdown(tmp_path) == 11


def test_a_deleted_marker_means_an_unclean_stop(tmp_path: Path) -> None:
    write_clean_shutdown(tmp_path)

    delete_clean_shutdown(tmp_path)

    assert read_clean_shutdown(tmp_path) is None
    delete_clean_shutdown(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"brokerEpoch":null}'])
def test_an_unreadable_marker_is_still_a_clean_stop(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_bytes(content)

    assert read_clean_shutdown(tmp_path) == -1


def test_partition_metadata_is_kafkas_and_survives_a_kill(tmp_path: Path) -> None:
    write_partition_metadata(tmp_path, TOPIC_ID)

    assert (tmp_path / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: 9KeQKO-m8Nhhk21nk6htvg"
    assert read_partition_metadata(tmp_path) == TOPIC_ID


def test_another_topic_id_for_the_same_directory_is_refused(tmp_path: Path) -> None:
    write_partition_metadata(tmp_path, TOPIC_ID)
    write_partition_metadata(tmp_path, TOPIC_ID)

    with pytest.raises(StorageError, match="names topic id"):
        write_partition_metadata(tmp_path, bytes(range(16)))


def test_a_partition_without_metadata_has_no_topic_id(tmp_path: Path) -> None:
    assert read_partition_metadata(tmp_path) is None


@pytest.mark.parametrize(
    "content", ["", "version: 0", "version 0\ntopic_id: x", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "version: 0\ntopic_id: short"]
)
def test_malformed_partition_metadata_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "partition.metadata").write_text(content)

    with pytest.raises(CorruptFileError):
        read_partition_metadata(tmp_path)
