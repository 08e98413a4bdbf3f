"""Topics come and go under load while every chore runs all the time: no disk is at fault, so none may be blamed, and nothing stops.

Every answer is legal as long as it is one; what counts is the broker's log, which has to be free of warnings and errors.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import SimpleRecord, build_batch
from tests.support.broker import BrokerProcess
from tests.support.wire import WireClient

SECONDS = 6.0
SEED = 7
TOPICS = 6
SETTINGS = {
    "log.retention.check.interval.ms": "50",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "60",
    "producer.id.expiration.check.interval.ms": "100",
    "log.segment.delete.delay.ms": "0",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
    "metadata.max.retention.bytes": "100000",
}
TOPIC_CONFIGS = {
    "segment.bytes": ["1048576", "2000000"],
    "segment.ms": ["50", "1000000"],
    "retention.bytes": ["-1", "1", "1000000"],
    "retention.ms": ["-1", "500"],
    "file.delete.delay.ms": ["0", "100"],
    "flush.messages": ["1", "10", "9223372036854775807"],
}

Step = Callable[[WireClient, random.Random], None]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, {**SETTINGS, "log.dirs": f"{tmp_path / 'first'},{tmp_path / 'second'}"})
    process.start()
    yield process
    process.kill()


def pick_topic(source: random.Random) -> str:
    return f"topic-{source.randrange(TOPICS)}"


def change_topics(client: WireClient, source: random.Random) -> None:
    name, choice = pick_topic(source), source.random()
    if choice < 0.55:
        configs = [CreatableTopicConfig(name=key, value=source.choice(values)) for key, values in TOPIC_CONFIGS.items()]
        topic = CreatableTopic(name=name, num_partitions=source.choice([1, 3, 80]), replication_factor=1, configs=configs)
        client.request(CreateTopicsRequest(topics=[topic]), 5)
    elif choice < 0.9:
        client.request(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 4)
    else:
        more = CreatePartitionsTopic(name=name, count=source.choice([2, 5, 90]), assignments=None)
        client.request(CreatePartitionsRequest(topics=[more], timeout_ms=10_000), 2)
    time.sleep(source.random() * 0.05)


def produce(client: WireClient, source: random.Random) -> None:
    value = bytes(source.choice([10, 1000, 300_000]))
    now_ms = int(time.time() * 1000)
    data = [
        PartitionProduceData(index=index, records=memoryview(build_batch([SimpleRecord(None, value, (), now_ms)])))
        for index in range(source.choice([1, 2, 4]))
    ]
    topic = TopicProduceData(name=pick_topic(source), partition_data=data)
    client.request(ProduceRequest(acks=source.choice([-1, 1]), timeout_ms=3000, topic_data=[topic]), 9)


def fetch(client: WireClient, source: random.Random) -> None:
    partitions = [FetchPartition(partition=index, fetch_offset=source.choice([0, 0, 5]), partition_max_bytes=200_000) for index in range(2)]
    topics = [FetchTopic(topic=f"topic-{number}", partitions=partitions) for number in range(TOPICS)]
    client.request(
        FetchRequest(
            max_wait_ms=source.choice([0, 50, 500]), min_bytes=source.choice([1, 50_000]), max_bytes=1 << 20,
            isolation_level=source.randrange(2), topics=topics,
        ),
        11,
    )  # fmt: skip


def run_load(broker: BrokerProcess) -> list[Exception]:
    """Each step in a loop on a connection of its own; returns what ended one early."""
    failures: list[Exception] = []
    end_s = time.monotonic() + SECONDS

    def repeat(step: Step, seed: int) -> None:
        source = random.Random(seed)
        try:
            with WireClient(broker.host, broker.port) as client:
                while time.monotonic() < end_s:
                    step(client, source)
        except (OSError, EOFError) as error:
            failures.append(error)

    steps = (change_topics, change_topics, produce, produce, fetch, fetch)
    threads = [threading.Thread(target=repeat, args=(step, SEED + number)) for number, step in enumerate(steps)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def test_topics_come_and_go_under_load_without_an_error(broker: BrokerProcess) -> None:
    failures = run_load(broker)
    exit_code = broker.stop()
    broker.start()
    broker.restart(hard=True)

    unusual = [line for line in broker.log_path.read_text().splitlines() if " INFO " not in line and " ready on " not in line]
    assert failures == []
    assert exit_code == 0
    assert unusual == []
