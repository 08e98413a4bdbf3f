"""The quorum of one and the metadata log: what is durable when, and what a restart finds."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from protocol.errors import ErrorCode, KafkaError
from protocol.records import iterate_headers
from storage.errors import StorageError
from tests.broker.metadata.room import creation, open_room

LOG_FILE = "__cluster_metadata-0/00000000000000000000.log"


async def test_a_new_log_begins_with_the_leader_the_bootstrap_and_this_broker(tmp_path: Path) -> None:
    room = await open_room(tmp_path)

    assert room.quorum.epoch == 1
    assert room.cache.state.features == {"metadata.version": 25, "group.version": 1, "transaction.version": 2}
    assert room.cache.brokers[1].is_active
    assert room.cache.brokers[1].epoch == 6
    await room.close()


async def test_everything_answered_survives_a_kill(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("t", 3, 1, retention_ms="7"))
    await room.client.allocate_producer_ids()
    topic_id = room.cache.topics["t"].topic_id

    again = await open_room(tmp_path)

    assert again.cache.topics["t"].topic_id == topic_id
    assert len(again.cache.topics["t"].partitions) == 3
    assert again.cache.log_config("t").retention_ms == 7
    assert (await again.client.allocate_producer_ids()).first == 1000
    assert again.controller.state.topics.keys() == again.cache.topics.keys()


async def test_each_start_leads_in_a_new_epoch(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("t", 1, 1))

    again = await open_room(tmp_path)

    assert (room.quorum.epoch, again.quorum.epoch) == (1, 2)
    assert again.cache.topics["t"].partitions[0].leader_epoch == 1
    assert again.cache.brokers[1].epoch > room.cache.brokers[1].epoch


async def test_the_epoch_does_not_go_back_when_the_log_lost_its_tail(tmp_path: Path) -> None:
    await open_room(tmp_path)
    await open_room(tmp_path)
    (tmp_path / LOG_FILE).write_bytes(b"")
    (tmp_path / "__cluster_metadata-0/leader-epoch-checkpoint").unlink()

    assert (await open_room(tmp_path)).quorum.epoch == 3


async def test_times_in_the_log_are_the_wall_clocks(tmp_path: Path) -> None:
    """Raft's own are not: its timeouts need a clock that never jumps."""
    room = await open_room(tmp_path)
    began_ms = room.clock.now_ms()
    await room.client.create_topics(creation("t", 1, 1))
    await room.close()

    headers = [header for _, header in iterate_headers(memoryview((tmp_path / LOG_FILE).read_bytes()))]
    assert headers[0].is_control
    assert {abs(header.max_timestamp - began_ms) < 60_000 for header in headers} == {True}


async def test_quorum_state_has_kafkas_form(tmp_path: Path) -> None:
    await open_room(tmp_path)

    assert json.loads((tmp_path / "__cluster_metadata-0/quorum-state").read_text()) == {
        "clusterId": "",
        "leaderId": 1,
        "leaderEpoch": 1,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}],
        "data_version": 0,
    }


async def test_a_torn_tail_is_cut_to_the_last_whole_batch(tmp_path: Path) -> None:
    """At every length the state is that of some prefix of the operations."""
    room = await open_room(tmp_path)
    for number in range(3):
        await room.client.create_topics(creation(f"t{number}", 1, 1))
    content = (tmp_path / LOG_FILE).read_bytes()
    ends = [position + header.size_bytes for position, header in iterate_headers(memoryview(content))]

    for length in range(ends[-4], len(content), 37):
        copy = tmp_path / f"copy-{length}"
        copy.mkdir()
        shutil.copytree(tmp_path / "__cluster_metadata-0", copy / "__cluster_metadata-0")
        (copy / LOG_FILE).write_bytes(content[:length])
        (copy / LOG_FILE).with_suffix(".index").unlink(missing_ok=True)
        (copy / LOG_FILE).with_suffix(".timeindex").unlink(missing_ok=True)
        reopened = await open_room(copy)
        whole = sum(end <= length for end in ends[-3:])
        assert list(reopened.cache.topics) == [f"t{number}" for number in range(whole)]
        await reopened.client.create_topics(creation("next", 1, 1))
        assert "next" in reopened.cache.topics
        await reopened.close()


async def test_nothing_is_answered_or_visible_before_it_is_durable(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    room.executor.is_held = True

    answer = asyncio.ensure_future(room.client.create_topics(creation("t", 1, 1)))
    await asyncio.sleep(0)
    was_visible, was_answered = "t" in room.cache.topics, answer.done()
    room.executor.release()

    assert (await answer).topics[0].error_code == 0
    assert (was_visible, was_answered) == (False, False)
    assert "t" in room.cache.topics


async def test_operations_made_during_an_fsync_share_the_next_one(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    room.executor.is_held = True
    before = room.executor.runs_count

    answers = [asyncio.ensure_future(room.client.create_topics(creation(f"t{number}", 1, 1))) for number in range(20)]
    await asyncio.sleep(0)
    room.executor.release()
    await asyncio.gather(*answers)

    assert room.executor.runs_count - before <= 2
    assert len(room.cache.topics) == 20


async def test_the_same_name_twice_before_the_commit_is_created_once(tmp_path: Path) -> None:
    room = await open_room(tmp_path)

    answers = await asyncio.gather(*[room.client.create_topics(creation("t", 1, 1)) for _ in range(3)])

    assert [answer.topics[0].error_code for answer in answers] == [0, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.TOPIC_ALREADY_EXISTS]


async def test_a_cancelled_request_does_not_undo_its_change(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    room.executor.is_held = True
    answer = asyncio.ensure_future(room.client.create_topics(creation("t", 1, 1)))
    await asyncio.sleep(0)

    answer.cancel()
    room.executor.release()
    await room.close()

    assert "t" in room.cache.topics


async def test_a_failed_fsync_fails_what_waits_and_ends_this_brokers_say(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    room.executor.error = StorageError("no space")

    with pytest.raises(KafkaError) as failed:
        await room.client.create_topics(creation("t", 1, 1))
    with pytest.raises(KafkaError) as refused:
        await room.client.create_topics(creation("u", 1, 1))

    assert (failed.value.code, refused.value.code) == (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_CONTROLLER)
    assert len(room.failures) == 1
    assert room.cache.topics == {}


async def test_a_deleted_topic_stays_deleted(tmp_path: Path) -> None:
    from protocol.messages.delete_topics import DeleteTopicsRequest

    room = await open_room(tmp_path)
    await room.client.create_topics(creation("t", 1, 1))
    await room.client.delete_topics(DeleteTopicsRequest(topic_names=["t"]), 1)

    assert (await open_room(tmp_path)).cache.topics == {}


async def test_a_late_subscriber_is_given_everything_at_once(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("t", 2, 1))
    deltas = []

    room.cache.subscribe(deltas.append)
    await room.client.create_topics(creation("u", 1, 1))

    assert [[change.topic.name for change in delta.changed_partitions] for delta in deltas] == [["t", "t"], ["u"]]


async def test_a_log_that_lacks_its_snapshot_is_refused(tmp_path: Path) -> None:
    room = await open_room(tmp_path)
    await room.client.create_topics(creation("t", 1, 1))
    await room.close()
    directory = tmp_path / "__cluster_metadata-0"
    for path in directory.glob("00000000000000000000.*"):
        path.unlink()
    for path in directory.glob("*.snapshot"):
        path.unlink()
    (directory / "00000000000000000100.log").write_bytes(b"")

    with pytest.raises(StorageError, match="snapshot"):
        await open_room(tmp_path)


async def test_a_log_with_a_hole_is_refused(tmp_path: Path) -> None:
    """Each record changes the state that those before it made."""
    room = await open_room(tmp_path)
    for name in ("a", "b"):
        await room.client.create_topics(creation(name, 1, 1))
    await room.close()
    content = (tmp_path / LOG_FILE).read_bytes()
    places = [(position, header.size_bytes) for position, header in iterate_headers(content)]
    position, size_bytes = places[-2]
    (tmp_path / LOG_FILE).write_bytes(content[:position] + content[position + size_bytes :])

    with pytest.raises(StorageError, match="has nothing between offsets"):
        await open_room(tmp_path)
