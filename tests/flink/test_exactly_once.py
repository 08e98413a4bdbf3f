"""Flink's KafkaSource and KafkaSink with EXACTLY_ONCE, in a job that ends after it has flushed a checkpoint and before it commits it.

The sink's transactions then are open and have no producer. The job that is restored commits them by their producer id and epoch, from
another connection, and aborts those that no checkpoint knows: INCREMENTING by initialising the ids that might have been next, POOLING by
asking brokers which there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.clients.topics import create_topic
from tests.streams.records import PARTITIONS, TIMEOUT_S, Record, Topic, send
from tests.support.flink import FlinkCopy
from tests.support.process import ServerProcess

BATCH = 300
INPUT, OUTPUT = "input", "output"
ENDS = ("cancel", "fail", "kill", "kill the broker")


@pytest.fixture(params=["INCREMENTING", "POOLING"])
def copy(request: pytest.FixtureRequest, own_server: ServerProcess, flink_classes: str, tmp_path: Path) -> Iterator[FlinkCopy]:
    for name in (INPUT, OUTPUT):
        create_topic(own_server, name, partitions=PARTITIONS)
    settings = {"bootstrap": own_server.bootstrap, "input": INPUT, "output": OUTPUT, "prefix": "copy", "naming": request.param}
    with closing(FlinkCopy(flink_classes, settings, tmp_path)) as made:
        yield made


def uncommitted_count(server: ServerProcess) -> int:
    """How many offsets of the output, over all partitions, are at or beyond the last stable one."""
    found = 0
    for isolation, sign in (("read_uncommitted", 1), ("read_committed", -1)):
        consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "nobody", "isolation.level": isolation})
        found += sign * sum(consumer.get_watermark_offsets(TopicPartition(OUTPUT, each), TIMEOUT_S)[1] for each in range(PARTITIONS))
        consumer.close()
    return found


def end_and_restore(copy: FlinkCopy, server: ServerProcess, end: str) -> None:
    """The end of a job whose commit is held, and the next one, which begins where it was."""
    match end:
        case "fail":  # Flink itself restores the job
            copy.fail()
            return
        case "kill":
            copy.kill()
        case "cancel" | "kill the broker":
            if end != "cancel":
                server.restart(hard=True)
            copy.cancel()
            copy.release()
    copy.start()


def test_each_value_is_copied_once_by_jobs_that_end_between_flush_and_commit(copy: FlinkCopy, own_server: ServerProcess) -> None:
    values = iter(range(1_000_000))

    def send_batch() -> list[str]:
        batch = [str(next(values)) for _ in range(BATCH)]
        send(own_server.bootstrap, INPUT, [Record(value, value) for value in batch])
        return batch

    copy.start()
    sent = send_batch()
    with Topic(own_server.bootstrap, OUTPUT) as output:
        output.wait_count(len(sent))
        for end in ENDS:
            copy.hold()
            sent += send_batch()
            copy.wait_held()
            assert uncommitted_count(own_server) > 0, "what the checkpoint flushed"
            sent += send_batch()

            end_and_restore(copy, own_server, end)

            output.wait_count(len(sent))
        copy.stop()

        assert sorted(record.value or "" for record in output.read()) == sorted(sent)
    assert uncommitted_count(own_server) == 0
