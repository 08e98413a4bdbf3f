"""A broker with two log directories, one of which cannot be used at its start, or is new."""

from __future__ import annotations

from pathlib import Path

from broker.metadata.record_format import read_metadata_batches
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.stored.metadata_records import PartitionChangeRecord, PartitionRecord
from storage.meta_properties import read_meta_properties
from tests.broker.metadata.room import CLUSTER_ID
from tests.broker.server.test_server import one_line, serve
from tests.clients.topics import create_topic, eventually
from tests.faults.test_full_disk import PARTITIONS, TOPIC, count_records, produce
from tests.support.broker import BrokerProcess
from tests.support.ports import free_port
from tests.support.wire import WireClient


def make_broker(tmp_path: Path) -> tuple[BrokerProcess, Path, Path]:
    first, second = tmp_path / "first", tmp_path / "second"
    return BrokerProcess(tmp_path, {"log.dirs": f"{first},{second}"}), first, second


def describe(broker: BrokerProcess) -> dict[int, tuple[int, list[int], ErrorCode]]:
    """Each partition's leader, offline replicas and error code."""
    with WireClient(broker.host, broker.port) as client:
        answer = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 9)
    return {
        each.partition_index: (each.leader_id, each.offline_replicas, ErrorCode(each.error_code)) for each in answer.topics[0].partitions
    }


def known_directories(metadata_log_dir: Path) -> dict[int, bytes]:
    """In which directory each partition's replica is, as the metadata log says."""
    known: dict[int, bytes] = {}
    content = (metadata_log_dir / "__cluster_metadata-0" / "00000000000000000000.log").read_bytes()
    for committed in read_metadata_batches(memoryview(content), "the metadata log"):
        for record in committed.records:
            if isinstance(record, PartitionRecord | PartitionChangeRecord) and record.directories:
                known[record.partition_id] = record.directories[0]
    return known


def partitions_in(log_dir: Path) -> set[int]:
    return {int(path.name.rpartition("-")[2]) for path in log_dir.glob(f"{TOPIC}-*")}


ONLINE = (1, [], ErrorCode.NONE)
OFFLINE = (-1, [1], ErrorCode.LEADER_NOT_AVAILABLE)


def test_directory_that_cannot_be_used_is_left_out_of_a_start_and_taken_back_by_the_next(tmp_path: Path) -> None:
    """Kafka starts with the directories that it can read (LogManager.createAndValidateLogDirs)."""
    broker, _, second = make_broker(tmp_path)
    broker.start()
    acked: dict[int, int] = {}
    with WireClient(broker.host, broker.port) as client:
        client.request(CreateTopicsRequest(topics=[CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)]), 5)
        assert {produce(client, index, acked) for index in range(PARTITIONS)} == {ErrorCode.NONE}
    broker.stop()
    lost = partitions_in(second)
    second.rename(tmp_path / "unplugged")
    second.write_text("no directory")

    broker.start()
    without = {index: OFFLINE if index in lost else ONLINE for index in range(PARTITIONS)}
    eventually(lambda: describe(broker) == without)
    with WireClient(broker.host, broker.port) as client:
        refused = {index for index in range(PARTITIONS) if produce(client, index, acked) is ErrorCode.KAFKA_STORAGE_ERROR}
    broker.kill()
    second.unlink()
    (tmp_path / "unplugged").rename(second)
    broker.start()
    eventually(lambda: describe(broker) == dict.fromkeys(range(PARTITIONS), ONLINE))
    with WireClient(broker.host, broker.port) as client:
        counts = {index: count_records(client, index) for index in range(PARTITIONS)}
    broker.stop()

    assert len(lost) == PARTITIONS // 2 and refused == lost
    assert counts == acked


def test_the_metadata_say_where_replicas_are_also_those_that_were_moved_by_hand(tmp_path: Path) -> None:
    """Whoever moves a partition's directory to another disk while the broker is stopped; KIP-858."""
    broker, *log_dirs = make_broker(tmp_path)
    broker.start()
    ids = {path: meta.directory_id for path in log_dirs if (meta := read_meta_properties(path)) is not None}

    def are_known() -> bool:
        return known_directories(log_dirs[0]) == {index: ids[path] for path in log_dirs for index in partitions_in(path)}

    acked: dict[int, int] = {}
    with WireClient(broker.host, broker.port) as client:
        client.request(CreateTopicsRequest(topics=[CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)]), 5)
        assert {produce(client, index, acked) for index in range(PARTITIONS)} == {ErrorCode.NONE}
    eventually(are_known)
    broker.stop()
    moved = min(partitions_in(log_dirs[0]))
    (log_dirs[0] / f"{TOPIC}-{moved}").rename(log_dirs[1] / f"{TOPIC}-{moved}")

    broker.start()
    with WireClient(broker.host, broker.port) as client:
        counts = {index: count_records(client, index) for index in range(PARTITIONS)}
    eventually(are_known)
    broker.stop()

    assert are_known() and moved in partitions_in(log_dirs[1])
    assert counts == acked


def test_start_without_the_metadata_logs_directory_fails_with_its_reason(tmp_path: Path) -> None:
    broker, first, second = make_broker(tmp_path)
    broker.start().stop()
    first.rename(tmp_path / "unplugged")
    first.write_text("no directory")

    ended = serve(f"log.dirs={first},{second}", "listeners=PLAINTEXT://127.0.0.1:0")

    assert ended.returncode == 1
    assert "the log directory of the metadata log" in ended.stderr.splitlines()[-1]


def with_metadata_apart(tmp_path: Path) -> BrokerProcess:
    """The only voter of a quorum whose voters are in the log (kraft.version 1), with a directory of its own for that log. Formatted."""
    port = free_port()
    broker = BrokerProcess(
        tmp_path,
        {"metadata.log.dir": str(tmp_path / "metadata"), "node.id": "1", "process.roles": "broker,controller",
         "controller.listener.names": "CONTROLLER", "controller.quorum.bootstrap.servers": f"127.0.0.1:{port}",
         "barnabas.auto.format": "false"},
    )  # fmt: skip
    broker.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{broker.port},CONTROLLER://127.0.0.1:{port}"
    broker.format(CLUSTER_ID, "--standalone")
    return broker


def test_metadata_log_may_have_a_directory_of_its_own(tmp_path: Path) -> None:
    broker = with_metadata_apart(tmp_path)

    broker.start()
    create_topic(broker, TOPIC, partitions=1)
    broker.kill()
    broker.start()
    known = describe(broker)
    second = serve(f"log.dirs={tmp_path / 'other'}", f"metadata.log.dir={tmp_path / 'metadata'}", "listeners=PLAINTEXT://127.0.0.1:0")
    broker.stop()

    assert known == {0: (1, [], ErrorCode.NONE)}
    assert (tmp_path / "metadata" / "__cluster_metadata-0").is_dir() and not (broker.data_dir / "__cluster_metadata-0").exists()
    assert "in use by another broker" in one_line(second.stderr)


def test_metadata_log_that_is_gone_is_not_begun_anew(tmp_path: Path) -> None:
    """A voter without its log would vote as if it had one. Kafka stops as well: "No `meta.properties` found in …"."""
    broker = with_metadata_apart(tmp_path)
    broker.start().stop()
    (tmp_path / "metadata").rename(tmp_path / "unplugged")

    ended = serve(*(f"{key}={value}" for key, value in {"log.dirs": broker.data_dir, **broker.settings}.items()))

    assert ended.returncode == 1
    assert f"log directory {tmp_path / 'metadata'} of the metadata log is not formatted, though others are" in one_line(ended.stderr)
    meta = read_meta_properties(broker.data_dir)
    assert meta is not None and f"run `barnabas format -t {meta.cluster_id} --ignore-formatted`" in one_line(ended.stderr)


def test_new_directory_beside_old_ones_is_given_an_identity(tmp_path: Path) -> None:
    """A disk that was replaced; Kafka writes its meta.properties at the start too."""
    broker, first, second = make_broker(tmp_path)
    broker.start().stop()
    (second / "meta.properties").unlink()

    broker.start().stop()

    old, new = read_meta_properties(first), read_meta_properties(second)
    assert old is not None and new is not None
    assert (new.cluster_id, new.node_id) == (old.cluster_id, old.node_id)
    assert new.directory_id not in (None, old.directory_id)
    assert f"log directory {second} is empty and was formatted for this node" in broker.log_path.read_text()


def test_directory_of_another_broker_still_stops_the_start(tmp_path: Path) -> None:
    broker, _, second = make_broker(tmp_path)
    broker.start()

    ended = serve(f"log.dirs={tmp_path / 'third'},{second}", "listeners=PLAINTEXT://127.0.0.1:0")
    broker.stop()

    assert "in use by another broker" in one_line(ended.stderr)
