"""A broker of two log directories whose replica moves between them: through the wire, under load, and killed in the middle."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import AlterReplicaLogDir, AlterReplicaLogDirsRequest, AlterReplicaLogDirTopic
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.records import iterate_headers, iterate_records
from storage.meta_properties import read_meta_properties
from tests.broker.test_log_directories import known_directories, make_broker
from tests.clients.topics import create_topic, eventually
from tests.support.broker import BrokerProcess
from tests.support.wire import WireClient

TOPIC = "orders"
VALUE_BYTES = 2_000
PRELOADED = 4_000
IN_FLIGHT_MAX = 50
KILLS = 4
ACKED_BEFORE_KILL = 100  # records, of a few milliseconds


class SteadyProducer:
    """Produces numbers in their order, without a gap, until it is stopped; knows which were acknowledged."""

    def __init__(self, broker: BrokerProcess, first: int = 0) -> None:
        self._producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 1, "delivery.timeout.ms": 60_000}
        )
        self.sent = first
        self.acked = first
        self._is_stopped = False
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for(self, count: int) -> None:
        """Until so many more were acknowledged."""
        with self._progress:
            goal = self.acked + count
            assert self._progress.wait_for(lambda: self.acked >= goal, timeout=60)

    def stop(self) -> int:
        """How many there are in all."""
        self._is_stopped = True
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert self.acked == self.sent
        return self.acked

    def _run(self) -> None:
        while not self._is_stopped:
            while self.sent - self.acked >= IN_FLIGHT_MAX:
                self._producer.poll(0.1)
            value = b"%d " % self.sent
            self._producer.produce(TOPIC, value + bytes(VALUE_BYTES), partition=0, on_delivery=self._note)
            self.sent += 1
            self._producer.poll(0.0005)

    def _note(self, error: object, message: object) -> None:
        assert error is None, error
        with self._progress:
            self.acked += 1
            self._progress.notify_all()


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[tuple[BrokerProcess, list[Path]]]:
    broker, *paths = make_broker(tmp_path)
    broker.start()
    yield broker, paths
    if broker.is_running:
        broker.stop()


def move(broker: BrokerProcess, path: Path) -> ErrorCode:
    directory = AlterReplicaLogDir(path=str(path), topics=[AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])])
    with WireClient(broker.host, broker.port) as client:
        (topic,) = client.request(AlterReplicaLogDirsRequest(dirs=[directory]), 2).results
    return ErrorCode(topic.partitions[0].error_code)


def places(broker: BrokerProcess) -> dict[str, bool]:
    """The log directories that have the partition, and whether as a copy."""
    with WireClient(broker.host, broker.port) as client:
        results = client.request(DescribeLogDirsRequest(topics=None), 4).results
    return {
        Path(each.log_dir).name: partition.is_future_key
        for each in results
        for topic in each.topics
        if topic.name == TOPIC
        for partition in topic.partitions
    }


def read_numbers(broker: BrokerProcess) -> list[int]:
    numbers: list[int] = []
    with WireClient(broker.host, broker.port) as client:
        while True:
            partition = FetchPartition(partition=0, fetch_offset=len(numbers), partition_max_bytes=1 << 24)
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, topics=[FetchTopic(topic=TOPIC, partitions=[partition])])
            data = memoryview(client.request(request, 11).responses[0].partitions[0].records or b"")
            found = [int((record.value or b"").split()[0]) for at, _ in iterate_headers(data) for record in iterate_records(data, at)]
            if not found:
                return numbers
            numbers += found


def other(paths: list[Path], place: str) -> Path:
    return next(path for path in paths if path.name != place)


def test_a_replica_moves_back_and_forth_while_it_is_written_and_read(directories: tuple[BrokerProcess, list[Path]]) -> None:
    broker, paths = directories
    create_topic(broker, TOPIC, config={"segment.bytes": "1048576", "file.delete.delay.ms": "100"})
    producer = SteadyProducer(broker)
    ids = {path.name: meta.directory_id for path in paths if (meta := read_meta_properties(path)) is not None}
    producer.wait_for(PRELOADED)

    for _ in range(3):
        (start,) = places(broker)
        target = other(paths, start)
        assert move(broker, target) is ErrorCode.NONE
        producer.wait_for(1)
        eventually(lambda target=target: places(broker) == {target.name: False})  # type: ignore[misc]
        assert known_directories(paths[0])[0] == ids[target.name]
    count = producer.stop()

    assert read_numbers(broker) == list(range(count))
    eventually(lambda: sum(len(list(path.glob(f"{TOPIC}-0*"))) for path in paths) == 1)


def test_kills_in_the_middle_lose_nothing_and_the_next_start_goes_on(directories: tuple[BrokerProcess, list[Path]]) -> None:
    broker, paths = directories
    create_topic(broker, TOPIC, config={"segment.bytes": "4194304", "file.delete.delay.ms": "100"})
    producer = SteadyProducer(broker)
    producer.wait_for(PRELOADED)
    ids = {path.name: meta.directory_id for path in paths if (meta := read_meta_properties(path)) is not None}

    for number in range(KILLS):
        start = next(name for name, is_future in places(broker).items() if not is_future)
        target = other(paths, start)
        assert move(broker, target) is ErrorCode.NONE
        producer.wait_for(1 + number * ACKED_BEFORE_KILL)
        broker.kill()
        broker.start()
        eventually(lambda: list(places(broker).values()) == [False])
    count = producer.stop()
    (place,) = places(broker)

    assert read_numbers(broker) == list(range(count))
    eventually(lambda: known_directories(paths[0])[0] == ids[place])
    assert [path.parent.name for directory in paths for path in directory.glob(f"{TOPIC}-0")] == [place]
