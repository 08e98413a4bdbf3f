"""A log directory's disk gets full, or breaks, under load: what is acknowledged survives, other directories go on, and who lost all
stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch, iterate_headers
from tests.support.fixtures import make_server
from tests.support.power import PowerCutDisk, missing_power_cut
from tests.support.process import ServerProcess
from tests.support.requirements import needs
from tests.support.small_disk import SmallDisk, missing_small_disk
from tests.support.wire import WireClient

__all__ = ["make_server"]

pytestmark = needs(missing_small_disk())

DISK_BYTES = 8 * 1024 * 1024
TOPIC = "orders"
PARTITIONS = 4  # two for each of two directories
EXIT_WAIT_S = 60.0
WAIT_S = 60.0

MakeServer = Callable[[dict[str, str]], ServerProcess]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    small_disk = SmallDisk(tmp_path / "disk", DISK_BYTES)
    yield small_disk
    small_disk.close()


def produce(client: WireClient, partition: int, acked: dict[int, int], *, timeout_ms: int = 5000) -> ErrorCode:
    """One record of 10 KB; counts it in `acked` if it is."""
    records = memoryview(build_batch([SimpleRecord(None, bytes(10_000))]))
    data = PartitionProduceData(index=partition, records=records)
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    response = client.request(ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[topic]), 9)
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


def wait_for(holds: Callable[[], bool]) -> None:
    """Until it holds: topics are made, groups loaded and lost directories told to the controller after the answer to a request."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


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
    expected = {index: -1 if index in refused else 1 for index in range(PARTITIONS)}
    wait_for(lambda: find_leaders(client) == expected)
    disk.free()
    server.restart()

    assert len(refused) == PARTITIONS // 2
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


@needs(missing_power_cut())
def test_broken_log_directory_goes_offline_alone(make_server: MakeServer, tmp_path: Path) -> None:
    """Every call on its file system fails with EIO, reads too."""
    broken = PowerCutDisk(tmp_path / "broken", seed=1)
    try:
        server, client = start(make_server, tmp_path / "roomy", broken.mount_point / "data")
        acked: dict[int, int] = {}
        for index in range(PARTITIONS):
            assert produce(client, index, acked) is ErrorCode.NONE

        broken.cut()
        codes = [produce(client, index, acked) for index in range(PARTITIONS)]
        expected = {index: 1 if code is ErrorCode.NONE else -1 for index, code in enumerate(codes)}
        wait_for(lambda: find_leaders(client) == expected)
        exit_code = server.stop()
    finally:
        broken.close()

    assert sorted(codes) == [ErrorCode.NONE] * (PARTITIONS // 2) + [ErrorCode.KAFKA_STORAGE_ERROR] * (PARTITIONS // 2)
    assert exit_code == 0


def test_groups_on_a_full_log_directory_lose_their_coordinator_and_no_commit(
    make_server: MakeServer, disk: SmallDisk, tmp_path: Path
) -> None:
    server, client = start(make_server, tmp_path / "roomy", disk.mount_point / "data")
    groups = [f"group-{number}" for number in range(8)]
    for group in groups:
        wait_for_coordinator(client, group)
    acked = dict.fromkeys(groups, -1)
    disk.fill(leave_bytes=2 * 4096)

    answers: dict[str, ErrorCode] = {}
    for offset in range(12):
        for group in groups:
            answers[group] = commit(client, group, offset)
            if answers[group] is ErrorCode.NONE:
                acked[group] = offset
    lost = {group for group, code in answers.items() if code is not ErrorCode.NONE}
    expected = {group: ErrorCode.COORDINATOR_NOT_AVAILABLE if group in lost else ErrorCode.NONE for group in groups}
    wait_for(lambda: {group: find_coordinator(client, group) for group in groups} == expected)
    disk.free()
    server.restart(hard=True)

    assert 0 < len(lost) < len(groups)
    assert {answers[group] for group in lost} == {ErrorCode.NOT_COORDINATOR}
    with WireClient(server.host, server.port) as reader:
        for group in groups:
            wait_for_coordinator(reader, group)
        assert {group: committed_offset(reader, group) for group in groups} == acked


def find_coordinator(client: WireClient, group: str) -> ErrorCode:
    response = client.request(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
    return ErrorCode(response.coordinators[0].error_code)


def wait_for_coordinator(client: WireClient, group: str) -> None:
    """Until the offsets topic is there, and the group loaded."""
    wait_for(lambda: find_coordinator(client, group) is ErrorCode.NONE and committed_offset(client, group) is not None)


def commit(client: WireClient, group: str, offset: int) -> ErrorCode:
    """With metadata of 2 KB, so that a few commits fill a page."""
    committed = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m" * 2000)
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[committed])
    response = client.request(OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic]), 8)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def committed_offset(client: WireClient, group: str) -> int | None:
    """-1 without a commit, None while the group is not there to be asked."""
    asked = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    answer = client.request(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked])]), 8).groups[0]
    if answer.error_code != 0:
        return None
    committed: int = answer.topics[0].partitions[0].committed_offset
    return committed
