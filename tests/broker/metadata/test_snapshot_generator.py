"""Snapshots while the broker runs: when they are written, what is in them, and what retention leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from broker.loop.turns import SLICE_US
from broker.metadata import snapshot_generator
from broker.metadata.snapshot import list_snapshots, read_newest_snapshot
from broker.metadata.snapshot_writer import RECORDS_PER_BATCH
from config.server import ServerConfig
from protocol.messages.stored.metadata_records import TopicRecord
from storage.errors import StorageError
from tests.broker.metadata.room import Room, creation, open_room

DIRECTORY = "__cluster_metadata-0"
BYTES_BETWEEN = 4000
INTERVAL_MS = 60_000


def make_config(**settings: Any) -> ServerConfig:
    defaults = {
        "offsets_topic_replication_factor": 1,
        "metadata_log_max_record_bytes_between_snapshots": BYTES_BETWEEN,
        "metadata_log_max_snapshot_interval_ms": 0,
        "metadata_log_segment_bytes": 1000,
    }
    return ServerConfig(**{**defaults, **settings})


async def create(room: Room, *names: str) -> None:
    for name in names:
        await room.client.create_topics(creation(name, 1, 1))
        await asyncio.sleep(0)


async def let_snapshots_end(room: Room) -> None:
    while room.snapshots.is_writing:
        await asyncio.sleep(0)


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number:03d}" for number in range(count)]


async def test_snapshot_is_written_when_enough_bytes_were_committed(tmp_path: Path) -> None:
    room = await open_room(tmp_path, make_config())

    await create(room, *names("t", 40))
    await let_snapshots_end(room)
    await room.close()
    again = await open_room(tmp_path, make_config())

    assert 1 <= len(list_snapshots(tmp_path / DIRECTORY)) <= 40 * 200 // BYTES_BETWEEN + 1
    assert list(again.cache.topics) == list(room.cache.topics)
    assert again.loaded_records_count < 60


async def test_snapshot_is_written_with_the_first_commit_after_the_interval(tmp_path: Path) -> None:
    room = await open_room(tmp_path, make_config(metadata_log_max_snapshot_interval_ms=INTERVAL_MS))
    await create(room, "a")
    room.clock.advance(INTERVAL_MS)
    before = list_snapshots(tmp_path / DIRECTORY)

    await create(room, "b")
    await let_snapshots_end(room)
    await create(room, "c")
    await let_snapshots_end(room)

    assert before == []
    (only,) = list_snapshots(tmp_path / DIRECTORY)
    assert only.timestamp == room.clock.now_ms()


async def test_snapshot_holds_the_state_of_its_offset(tmp_path: Path) -> None:
    """What is committed while it is encoded and written is not in it, and is found in the log after it."""
    room = await open_room(tmp_path, make_config(metadata_log_max_snapshot_interval_ms=INTERVAL_MS))
    room.clock.advance(INTERVAL_MS)
    await room.client.create_topics(creation("before", 1, 1))

    await asyncio.gather(*[room.client.create_topics(creation(name, 3, 1)) for name in ("during", "too")])
    await let_snapshots_end(room)
    again = await open_room(tmp_path)

    snapshot = read_newest_snapshot(tmp_path / DIRECTORY)
    assert snapshot is not None
    assert [record.name for record in snapshot.records if isinstance(record, TopicRecord)] == ["before"]
    assert list(again.cache.topics) == ["before", "during", "too"]


async def test_a_large_state_is_encoded_in_slices_of_the_loops_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_between = 1 << 30  # the interval alone makes a snapshot due
    config = make_config(metadata_log_max_record_bytes_between_snapshots=bytes_between, metadata_log_max_snapshot_interval_ms=INTERVAL_MS)
    room = await open_room(tmp_path, config)
    await create(room, *names("t", RECORDS_PER_BATCH))
    encoded: list[Any] = []
    batches = snapshot_generator.snapshot_batches

    def noted(*arguments: Any, **options: Any) -> Iterator[bytes | bytearray]:
        for batch in batches(*arguments, **options):
            encoded.append(batch)
            yield batch

    monkeypatch.setattr(snapshot_generator, "snapshot_batches", noted)
    monkeypatch.setattr(room.clock, "monotonic_us", iter(range(0, 10**9, SLICE_US)).__next__)  # each look is at the end of the slice
    room.clock.advance(INTERVAL_MS)

    await create(room, "last")
    counts = [len(encoded)]
    while room.snapshots.is_writing:
        await asyncio.sleep(0)
        counts.append(len(encoded))

    assert len(encoded) >= 4 and max(after - before for before, after in pairwise(counts)) == 1


async def test_log_and_snapshots_are_shortened_to_the_retention(tmp_path: Path) -> None:
    config = make_config(metadata_max_retention_bytes=15_000)
    room = await open_room(tmp_path, config)

    for prefix in "abcdef":
        await create(room, *names(prefix, 25))
        await let_snapshots_end(room)
    log_start_offset = room.log.log.log_start_offset
    again = await open_room(tmp_path, config)

    snapshots = list_snapshots(tmp_path / DIRECTORY)
    assert log_start_offset > 0
    assert 1 <= len(snapshots) < 5 and snapshots[0].end_offset >= log_start_offset
    assert min(int(path.stem) for path in (tmp_path / DIRECTORY).glob("*.log")) > 0
    assert list((tmp_path / DIRECTORY).glob("*.deleted")) == []
    assert list(again.cache.topics) == list(room.cache.topics)


async def test_snapshots_older_than_the_retention_go_but_the_newest(tmp_path: Path) -> None:
    room = await open_room(tmp_path, make_config(metadata_log_max_snapshot_interval_ms=INTERVAL_MS, metadata_max_retention_ms=INTERVAL_MS))

    for number in range(4):
        room.clock.advance(INTERVAL_MS * 2)
        await create(room, f"t{number}")
        await let_snapshots_end(room)

    (newest,) = list_snapshots(tmp_path / DIRECTORY)
    assert newest.timestamp == room.clock.now_ms()
    assert list((await open_room(tmp_path)).cache.topics) == ["t0", "t1", "t2", "t3"]


async def test_snapshot_that_cannot_be_written_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise StorageError("no space")

    room = await open_room(tmp_path, make_config())
    with monkeypatch.context() as patch:
        patch.setattr(snapshot_generator, "write_snapshot", fail)
        await create(room, *names("a", 25))
        await let_snapshots_end(room)
    without = list_snapshots(tmp_path / DIRECTORY)

    await create(room, *names("b", 25))
    await let_snapshots_end(room)

    assert without == []
    assert list_snapshots(tmp_path / DIRECTORY) != []
    assert room.failures == []


async def test_newest_snapshot_that_is_damaged_after_older_ones_went_stops_the_start(tmp_path: Path) -> None:
    room = await open_room(tmp_path, make_config(metadata_max_retention_bytes=0))
    for prefix in "abc":
        await create(room, *names(prefix, 25))
        await let_snapshots_end(room)
    await room.close()
    (newest,) = list_snapshots(tmp_path / DIRECTORY)
    newest.path.write_bytes(newest.path.read_bytes()[:-20])

    with pytest.raises(StorageError, match="snapshot"):
        await open_room(tmp_path)
