"""A log directory's disk gets full under load: what is acknowledged survives, other directories go on, and who lost all stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch, iterate_headers
from tests.support.fixtures import make_server
from tests.support.process import ServerProcess
from tests.support.small_disk import SmallDisk, missing_small_disk
from tests.support.wire import WireClient

__all__ = ["make_server"]

pytestmark = pytest.mark.skipif(missing_small_disk() is not None, reason=str(missing_small_disk()))

DISK_BYTES = 8 * 1024 * 1024
TOPIC = "orders"
PARTITIONS = 4  # two for each of two directories
EXIT_WAIT_S = 30.0

MakeServer = Callable[[dict[str, str]], ServerProcess]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    small_disk = SmallDisk(tmp_path / "disk", DISK_BYTES)
    yield small_disk
    small_disk.close()


def produce(client: WireClient, partition: int, acked: dict[int, int]) -> ErrorCode:
    """One record of 10 KB; counts it in `acked` if it is."""
    records = memoryview(build_batch([SimpleRecord(None, bytes(10_000))]))
    data = PartitionProduceData(index=partition, records=records)
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    response = client.request(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]), 9)
    code = ErrorCode(response.responses[0].partition_responses[0].error_code)
    if code is ErrorCode.NONE:
        acked[partition] = acked.get(partition, 0) + 1
    return code


def count_records(client: WireClient, partition: int) -> int:
    count = 0
    while True:
        asked = FetchPartition(partition=partition, fetch_offset=count, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic=TOPIC, partitions=[asked])
        response = client.request(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic]), 11)
        answer = response.responses[0].partitions[0]
        assert answer.error_code == 0
        if not answer.records:
            return count
        count += sum(header.records_count for _, header in iterate_headers(answer.records))


def find_leaders(client: WireClient) -> dict[int, int]:
    answer = client.request(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 9)
    return {each.partition_index: each.leader_id for each in answer.topics[0].partitions}


def start(make_server: MakeServer, *log_dirs: Path) -> tuple[ServerProcess, WireClient]:
    server = make_server({"log.dirs": ",".join(str(log_dir) for log_dir in log_dirs)})
    client = WireClient(server.host, server.port)
    client.request(CreateTopicsRequest(topics=[CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)]), 5)
    return server, client


def produce_until_refused(client: WireClient, disk: SmallDisk, acked: dict[int, int]) -> set[int]:
    """Fill the disk under load. Returns the partitions that were refused, each with KAFKA_STORAGE_ERROR."""
    for _ in range(3):
        assert [produce(client, index, acked) for index in range(PARTITIONS)] == [ErrorCode.NONE] * PARTITIONS
    disk.fill(leave_bytes=100_000)
    codes: dict[int, ErrorCode] = {}
    for _ in range(20):
        codes = {index: produce(client, index, acked) for index in range(PARTITIONS)}
    assert set(codes.values()) <= {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
    return {index for index, code in codes.items() if code is not ErrorCode.NONE}


def test_full_log_directory_goes_offline_alone(make_server: MakeServer, disk: SmallDisk, tmp_path: Path) -> None:
    server, client = start(make_server, tmp_path / "roomy", disk.mount_point / "data")
    acked: dict[int, int] = {}

    refused = produce_until_refused(client, disk, acked)
    leaders = find_leaders(client)
    disk.free()
    server.restart()

    assert len(refused) == PARTITIONS // 2
    assert leaders == {index: -1 if index in refused else 1 for index in range(PARTITIONS)}
    with WireClient(server.host, server.port) as reader:
        assert {index: count_records(reader, index) for index in range(PARTITIONS)} == acked
        assert [produce(reader, index, acked) for index in range(PARTITIONS)] == [ErrorCode.NONE] * PARTITIONS


@pytest.mark.parametrize("roomy", [[], ["roomy"]], ids=["only", "first"])
def test_broker_stops_without_the_directory_of_its_metadata_log(
    make_server: MakeServer, disk: SmallDisk, tmp_path: Path, roomy: list[str]
) -> None:
    """Kafka halts then, also when other directories are left (ReplicaManager.handleLogDirFailure)."""
    server, client = start(make_server, disk.mount_point / "data", *(tmp_path / name for name in roomy))
    acked: dict[int, int] = {}

    with pytest.raises((EOFError, ConnectionError)):
        produce_until_refused(client, disk, acked)
    exit_code = server.wait(EXIT_WAIT_S)
    disk.free()
    server.start()

    assert exit_code == 1
    with WireClient(server.host, server.port) as reader:
        assert {index: count_records(reader, index) for index in range(PARTITIONS)} == acked
