"""ReplicaManager: produce and fetch through real logs, and following the metadata."""

from __future__ import annotations

import errno
import itertools
import random
from pathlib import Path

import pytest

from broker.loop.turns import SLICE_US
from broker.replication.fetch.fetch_data import FetchIsolation, FetchTarget
from broker.replication.metadata.broker_metadata_publisher import NEW_LOGS_AT_ONCE
from protocol.errors import ErrorCode, KafkaError
from storage.disk import SYSTEM_DISK
from storage.log_manager import LogManager
from tests.broker.replication.world import World, batch, fetch_params, values


def test_produced_records_are_fetched_back_with_their_offsets(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("orders")

    first = world.produce("orders", batch("a", "b"))
    second = world.produce("orders", batch("c"))
    reads = world.fetch("orders", 0)

    assert [result.base_offset for result in first + second] == [0, 2]
    assert values(reads[0].records) == ["a", "b", "c"]
    assert reads[0].high_watermark == 3


def test_acks_all_with_one_replica_is_answered_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("orders")

    results = world.produce("orders", batch("a"), acks=-1)

    assert [result.error_code for result in results] == [ErrorCode.NONE]
    assert world.clock.pending_timers == []


def test_append_fails_only_the_partition_that_cannot_take_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("orders")
    corrupt = batch("x")
    corrupt[-1] ^= 0xFF
    answers: list[ErrorCode] = []

    world.replica_manager.append(
        [("orders", 0, corrupt), ("nobody", 0, batch("y")), ("orders", 7, batch("z"))],
        acks=1,
        timeout_ms=100,
        on_done=lambda results: answers.extend(result.error_code for result in results),
    )

    assert answers == [ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.partition("orders").log.log_end_offset == 0


def test_a_batch_that_is_too_large_counts_as_bytes_rejected(tmp_path: Path) -> None:
    """By its size as it came, for its topic and for all, as UnifiedLog marks bytesRejectedRate."""
    world = World(tmp_path)
    world.create_topic("small", max_message_bytes="100")
    world.create_topic("large")
    refused = batch("x" * 200)

    (too_large,) = world.produce("small", refused)
    world.produce("large", batch("x" * 200))

    assert too_large.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert world.metrics.topic("small").bytes_rejected == len(refused)
    assert world.metrics.topic("large").bytes_rejected == 0
    assert world.metrics.snapshot().all_topics["bytes_rejected"] == len(refused)


@pytest.mark.parametrize(
    ("settings", "spoil", "error"),
    [
        ({}, True, ErrorCode.CORRUPT_MESSAGE),
        ({"segment_bytes": "1048576", "max_message_bytes": "3000000"}, False, ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
)
def test_other_refusals_are_no_bytes_rejected(tmp_path: Path, settings: dict[str, str], spoil: bool, error: ErrorCode) -> None:
    world = World(tmp_path)
    world.create_topic("orders", **settings)
    refused = batch("x" * 10 if spoil else "x" * 1_100_000)
    if spoil:
        refused[-1] ^= 0xFF

    (result,) = world.produce("orders", refused)

    assert result.error_code == error
    assert world.metrics.topic("orders").bytes_rejected == 0


def test_get_partition_tells_where_the_partition_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("elsewhere", replicas=(2,), leader=2)

    with pytest.raises(KafkaError) as elsewhere:
        world.replica_manager.get_partition("elsewhere", 0)
    with pytest.raises(KafkaError) as unknown:
        world.replica_manager.get_partition("elsewhere", 1)

    assert elsewhere.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_deleted_topic_is_unknown_and_may_be_made_anew(tmp_path: Path) -> None:
    world = World(tmp_path / "one")
    world.create_topic("orders")
    world.produce("orders", batch("old"))

    world.delete_topic("orders")
    assert world.fetch("orders", 0)[0].error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.logs.directory = tmp_path / "two"
    world.create_topic("orders")

    assert world.partition("orders").log.log_end_offset == 0


def test_topic_config_takes_effect_with_the_next_append(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("orders")

    world.set_topic_config("orders", "max.message.bytes", "100")
    results = world.produce("orders", batch("x" * 200))

    assert results[0].error_code is ErrorCode.MESSAGE_TOO_LARGE


def test_fetch_with_another_topic_id_is_inconsistent(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("orders")

    reads = world.fetch_all([FetchTarget("orders", 0, 0, 1000, topic_id=b"\xff" * 16)])

    assert reads[0].error_code is ErrorCode.INCONSISTENT_TOPIC_ID


def test_metrics_count_messages_and_bytes_of_an_append(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("orders")
    records = batch("a", "b")

    world.produce("orders", records)

    counters = world.metrics.topic("orders")
    assert (counters.messages_in, counters.bytes_in, counters.total_produce_requests) == (2, len(records), 1)


def test_what_a_follower_told_counts_also_when_its_connection_ends_amid_the_fetch(tmp_path: Path) -> None:
    world = World(tmp_path)
    for topic in ("a", "b"):
        world.create_topic(topic, replicas=(1, 2))
    waiting = world.produce("a", batch("x"), acks=-1)
    targets = [FetchTarget("a", 0, 1, 1 << 20, log_start_offset=0), FetchTarget("b", 0, 0, 1 << 20, log_start_offset=0)]
    asked = fetch_params(replica_id=2, isolation=FetchIsolation.LOG_END)

    reading = world.replica_manager.reader.read(asked, targets, None, is_arrival=True)
    next(reading)
    assert not waiting
    reading.close()

    assert [result.error_code for result in waiting] == [ErrorCode.NONE]


def test_disk_that_fails_in_an_append_takes_its_directory_offline_and_wakes_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    world.create_topic("orders", replicas=(1, 2))
    waiting = world.produce("orders", batch("a"), acks=-1)

    def fail(*arguments: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(SYSTEM_DISK, "pwrite", fail)
    failed = world.produce("orders", batch("b"))

    assert [failed[0].error_code, waiting[0].error_code] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert world.failed_log_dirs == [tmp_path]


def test_partition_whose_log_cannot_be_made_answers_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("not a directory")
    world = World(tmp_path / "broken")
    world.create_topic("orders")

    assert world.produce("orders", batch("a"))[0].error_code is ErrorCode.KAFKA_STORAGE_ERROR


def test_log_missing_at_the_start_is_not_made_anew_while_a_directory_is_offline(tmp_path: Path) -> None:
    """It may lie there: an empty one in another directory would hide every acknowledged record."""
    world = World(tmp_path)
    world.logs.directories = [tmp_path, tmp_path / "offline"]

    world.create_topic("known", replicas=(1,))
    world.create_topic("new")
    world.change_partition("known", leader=-1)
    world.change_partition("known", leader=1)

    assert world.produce("known", batch("a"))[0].error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not (tmp_path / "known-0").exists()
    assert world.produce("new", batch("a"))[0].error_code is ErrorCode.NONE


def opened_logs(directory: Path) -> LogManager:
    logs = LogManager([directory], random_source=random.Random(1))
    logs.lock()
    return logs


def test_logs_are_made_off_the_loop_and_their_partitions_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.create_topic("first")  # what is there at the start is made at once
    world.executor.keeps_creations = True
    milliseconds_us = itertools.count(step=1_000)
    monkeypatch.setattr(world.clock, "monotonic_us", lambda: next(milliseconds_us))

    world.create_topic("large", partitions=100)
    world.set_topic_config("large", "flush.messages", "1")
    made_at_once = [path for path in tmp_path.iterdir() if path.name.startswith("large")]
    world.executor.run()
    hosted_at_once = [partition for partition in world.replica_manager.partitions() if partition.topic == "large"]
    world.clock.advance(1)
    logs_of_the_first_works = [path for path in tmp_path.iterdir() if path.name.startswith("large")]
    while world.executor.pending:
        world.executor.run()
        world.clock.advance(1)

    assert made_at_once == []
    assert len(hosted_at_once) == SLICE_US / 1_000
    assert len(logs_of_the_first_works) == NEW_LOGS_AT_ONCE
    assert world.partition("large", 99).is_leader
    assert world.partition("large", 99).waits_for_flush
    assert world.clock.pending_timers == []


def test_partition_that_is_asked_for_does_not_wait_for_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests for very many are told to try again once a slice of the loop's time has gone into making partitions."""
    world = World(tmp_path)
    milliseconds_us = itertools.count(step=1_000)
    monkeypatch.setattr(world.clock, "monotonic_us", lambda: next(milliseconds_us))
    world.create_topic("first")
    world.executor.keeps_creations = True
    world.create_topic("large", partitions=500)

    produced = [world.produce("large", batch("x"), index=index)[0] for index in range(499, 400, -1)]
    world.executor.keeps_creations = False
    world.executor.run()
    world.clock.advance(1)

    made_count = SLICE_US // 1_000
    assert [result.error_code for result in produced[:made_count]] == [ErrorCode.NONE] * made_count
    assert {result.error_code for result in produced[made_count:]} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert world.partition("large", 499).log.log_end_offset == 1
    assert len(list(world.replica_manager.partitions())) == 501


def test_a_topic_made_while_a_large_one_is_waits_for_its_turn(tmp_path: Path) -> None:
    """Else each commit of thousands of new topics makes some, beside those of the turn."""
    world = World(tmp_path)
    world.create_topic("first")
    world.executor.keeps_creations = True
    world.create_topic("large", partitions=500)

    world.create_topic("next")
    works_count = len(world.executor.pending)
    world.executor.keeps_creations = False
    world.executor.run()
    world.clock.advance(1)

    assert works_count == 1
    assert world.partition("next", 0).log.log_end_offset == 0


def test_large_topic_that_is_deleted_while_it_is_made_leaves_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, logs=opened_logs(tmp_path))
    world.create_topic("first")
    world.executor.keeps_creations = True
    world.create_topic("large", partitions=100)

    logs = world.executor.pending[0]
    world.delete_topic("large")
    logs.run()
    world.executor.run()
    world.clock.advance(1)

    assert {partition.topic for partition in world.replica_manager.partitions()} == {"first"}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("large")]


def test_topic_that_is_deleted_when_its_logs_are_made_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of its logs have partitions then, others wait for them."""
    world = World(tmp_path, logs=opened_logs(tmp_path))
    world.create_topic("first")
    world.executor.keeps_creations = True
    world.create_topic("large", partitions=10)
    milliseconds_us = itertools.count(step=1_000)
    monkeypatch.setattr(world.clock, "monotonic_us", lambda: next(milliseconds_us))
    world.executor.run()
    hosted_count = len(list(world.replica_manager.partitions()))

    world.delete_topic("large")
    new_id = world.create_topic("large", partitions=10)
    for _ in range(5):
        world.executor.run()
        world.clock.advance(1)

    assert hosted_count < 11
    assert {world.partition("large", index).log.topic_id for index in range(10)} == {new_id}


def test_partition_that_moves_away_while_its_log_is_made_leaves_none(tmp_path: Path) -> None:
    world = World(tmp_path, logs=opened_logs(tmp_path))
    world.create_topic("first")
    world.executor.keeps_creations = True
    world.create_topic("moved", replicas=(1, 2))

    world.change_partition("moved", replicas=[2], isr=[2], leader=2)
    world.executor.run()
    world.clock.advance(0)
    world.executor.run()

    assert world.replica_manager.find_partition("moved", 0) is None
    assert not (tmp_path / "moved-0").exists()


def test_stop_makes_no_more_partitions(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("first")
    world.executor.keeps_creations = True
    world.create_topic("large", partitions=100)

    world.replica_manager.stop()
    world.executor.run()
    world.clock.advance(1)

    assert {partition.topic for partition in world.replica_manager.partitions()} == {"first"}
    assert not (tmp_path / "large-99").exists()
