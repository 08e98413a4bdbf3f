"""`barnabas log` at the data folders of both kinds of servers, which run meanwhile, and at damaged copies."""

from __future__ import annotations

import base64
import shutil
import struct
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.barnabas.cli.conftest import Command, fill
from tests.support.process import ServerProcess

JOIN_S = 60
BINARY = b"\xff" * 500


@pytest.fixture
def directory(command: Command, server_process: ServerProcess, topic_name: str) -> Path:
    """Of a partition: two records, a transaction that is aborted (offset 2, marker 3), one that is committed (4, 5)."""
    command.done("topic", "create", topic_name, "-c", "retention.ms=-1")
    fill(command, topic_name, [(0, "first"), (0, "second")])
    producer = Producer({"bootstrap.servers": command.bootstrap, "transactional.id": topic_name, "compression.type": "gzip"})
    producer.init_transactions(JOIN_S)
    for is_committed in (False, True):
        producer.begin_transaction()
        producer.produce(topic_name, BINARY, key="k", headers={"h": b"w"})
        producer.flush(JOIN_S)
        producer.commit_transaction(JOIN_S) if is_committed else producer.abort_transaction(JOIN_S)
    command.done("consume", topic_name, "-e")  # the markers are written
    return server_process.data_dir / f"{topic_name}-0"


def test_segments_and_batches_are_shown(command: Command, directory: Path, topic_name: str) -> None:
    (segment,) = command.done("log", "segments", str(directory), "-o", "json").data
    facts = ("topic", "partition", "base_offset", "next_offset", "records", "batches")
    assert [segment[name] for name in facts] == [topic_name, 0, 0, 6, 6, 6]
    assert 0 < segment["first_timestamp"] <= segment["max_timestamp"] < (time.time() + 1) * 1_000

    batches = command.done("log", "batches", str(directory / f"{0:020}.log"), "--records", "-o", "json").data

    assert [(each["base_offset"], each["is_transactional"], each["is_control"], each["compression"]) for each in batches] == [
        (0, False, False, "none"), (1, False, False, "none"), (2, True, False, "gzip"), (3, True, True, "none"),
        (4, True, False, "gzip"), (5, True, True, "none"),
    ]  # fmt: skip
    assert all(each["is_valid"] for each in batches) and batches[2]["producer_id"] == batches[4]["producer_id"] is not None
    assert batches[0]["records"] == [{"offset": 0, "timestamp": segment["first_timestamp"], "key": None, "value": "first", "headers": []}]
    assert (batches[2]["records"][0]["value_base64"], batches[2]["records"][0]["headers"]) == (
        base64.b64encode(BINARY).decode(),
        [{"key": "h", "value": "w"}],
    )
    assert [batches[marker]["records"][0]["control"] for marker in (3, 5)] == ["ABORT", "COMMIT"]
    table = command.done("log", "dump", str(directory), "--records").out.splitlines()
    assert len(table) == 7 and table[1].split()[:3] == [topic_name, "0", "0"] and table[4].endswith("ABORT")


def test_indexes_snapshots_and_checkpoints_are_shown(command: Command, directory: Path, topic_name: str, tmp_path: Path) -> None:
    rows = command.done("log", "indexes", str(directory), "-o", "json").data
    (aborted,) = [row for row in rows if row["kind"] == "transactions"]
    assert (aborted["first_offset"], aborted["offset"], aborted["topic"]) == (2, 3, topic_name)
    of_partition = {row["kind"]: row for row in command.done("log", "checkpoints", str(directory), "-o", "json").data}
    assert len(of_partition["topic id"]["topic_id"]) == 22
    (tmp_path / "replication-offset-checkpoint").write_text(f"0\n1\n{topic_name} 0 6\n")
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n3 4\n")
    (epoch,) = command.done("log", "checkpoints", str(tmp_path / "leader-epoch-checkpoint"), "-o", "json").data
    assert (epoch["epoch"], epoch["offset"]) == (3, 4)
    (mark,) = command.done("log", "checkpoints", str(tmp_path / "replication-offset-checkpoint"), "-o", "json").data
    assert (mark["topic"], mark["partition"], mark["kind"], mark["offset"]) == (topic_name, 0, "high watermark", 6)
    command.done("topic", "add-partitions", topic_name, "-n", "1")
    assert command.done("log", "snapshots", str(directory)).out.startswith("TOPIC")


def test_whole_folder_is_verified_beside_its_broker(command: Command, directory: Path, server_process: ServerProcess) -> None:
    verified = command.done("log", "verify", str(server_process.data_dir), "-o", "json").data

    assert verified["is_whole"] and verified["partitions"] > 1 and verified["size_bytes"] > 400
    assert command.done("log", "verify", str(directory)).out.endswith(": all is whole\n")


def test_damage_is_found_and_explained(
    command: Command, directory: Path, server_process: ServerProcess, tmp_path: Path, topic_name: str
) -> None:
    data = tmp_path / "data"
    copy = Path(shutil.copytree(directory, data / directory.name))
    shutil.copy(server_process.data_dir / "meta.properties", data)
    assert command.done("log", "verify", str(data)).out.endswith(": all is whole\n")
    log = copy / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[65] ^= 1
    log.write_bytes(content)
    (copy / f"{7:020}.snapshot").write_bytes(struct.pack(">hIi", 1, 7, 0))
    (copy / "leader-epoch-checkpoint").write_text("0\n1\n0 nowhere\n")
    (data / "log-start-offset-checkpoint").write_text("0\n")
    (data / "meta.properties").write_text("version=1\n")

    result = command("log", "verify", str(data), "-o", "json")

    assert result.code == 4 and not result.data["is_whole"]
    found = {each["file"]: each for each in result.data["findings"]}
    assert (found[log.name]["problem"], found[log.name]["position"], found[log.name]["topic"]) == ("the CRC does not fit", 0, topic_name)
    assert found[f"{7:020}.snapshot"]["problem"] == "its CRC does not fit"
    assert found["meta.properties"]["problem"] == "it has no cluster.id, node.id"
    assert {"leader-epoch-checkpoint", "log-start-offset-checkpoint"} <= found.keys()
    shown = command("log", "audit", str(data)).out
    assert "the CRC does not fit" in shown and shown.splitlines()[-1].endswith("findings")
    assert not command("log", "batches", str(data), "-o", "json").data[0]["is_valid"]
    torn = command("log", "snapshots", str(data))
    assert torn.code == 1 and "its CRC does not fit" in torn.err and torn.err.count("\n") == 1


def test_partition_in_two_directories_is_found(command: Command, directory: Path, tmp_path: Path) -> None:
    copies = [Path(shutil.copytree(directory, tmp_path / name / directory.name)).parent for name in ("one", "two")]

    result = command("log", "verify", *(str(each) for each in copies), "-o", "json")

    # These are no log directories by a file of their own: what is in them says so.
    assert result.code == 4 and [each["problem"] for each in result.data["findings"]] == [f"the partition is in {copies[0]} as well"]


def test_what_is_no_data_folder_is_not_understood(barnabas_command: Command, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("x")
    for words in (("segments", "/no/such"), ("segments", str(tmp_path)), ("batches", str(tmp_path / "other.txt")), ("verify", "/no/such")):
        result = barnabas_command("log", *words)
        assert result.code == 2 and result.err.count("\n") == 1
    torn = tmp_path / "t-0" / f"{0:020}.log"
    torn.parent.mkdir()
    torn.write_bytes(b"garbage" * 20)
    damaged = barnabas_command("log", "segments", str(torn))
    assert damaged.code == 1 and "where no batch of format 2 begins" in damaged.err
