"""Fetches of very many partitions: read in turns, and answered as those of few."""

from __future__ import annotations

import os
from pathlib import Path
from types import GeneratorType
from typing import Any

import pytest

from broker.handlers.produce_fetch import fetch, fetch_answers
from broker.loop.deferred import Deferred
from broker.replication.fetch import fetch_session_cache
from broker.replication.partition import Partition
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse, FetchTopic
from storage.page_cache import ColdRead
from tests.broker.handlers.produce_fetch.test_fetch import Client, parts, topic
from tests.broker.loop.turn_loop import TurnLoop
from tests.broker.replication.world import ManualExecutor, World, batch, values

FEW = 4
MANY = 40


class TurnsClient(Client):
    """A client whose long requests run on a loop by hand, one turn at a `loop.turn()`."""

    def __init__(self, world: World, version: int = 12) -> None:
        super().__init__(world, version)
        self.loop = TurnLoop()

    def begin(self, *topics: FetchTopic, **fields: Any) -> Deferred:
        """A request that goes in turns."""
        outcome = self.start(*topics, **fields)
        assert not isinstance(outcome, Deferred | FetchResponse), "the request does not go in turns"
        return self.loop.turns.start(outcome)

    def finish(self, answer: Deferred) -> FetchResponse:
        """Run the loop until it stands still: the response must be there."""
        self.loop.run()
        response = answer.take()
        while isinstance(response, GeneratorType):  # the end of a wait is read in turns too
            following = self.loop.turns.start(response)
            self.loop.run()
            response = following.take()
        return self.response(response)

    def all(self, *topics: FetchTopic, **fields: Any) -> FetchResponse:
        return self.finish(self.begin(*topics, **fields))


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of partitions take seconds to make."""
    for module in (fetch, fetch_answers):
        monkeypatch.setattr(module, "ELEMENTS_AT_ONCE", FEW)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create_topic("a", partitions=MANY)
    return world


def everything() -> FetchTopic:
    return topic("a", *((index, 0) for index in range(MANY)))


def indexes(response: FetchResponse) -> list[int]:
    return [part.partition_index for part in parts(response)]


# -- at once ---------------------------------------------------------------------------------------------------------


def test_every_partition_is_answered_in_the_requests_order(world: World) -> None:
    world.produce("a", batch("x"), index=7)

    response = TurnsClient(world).all(everything(), topic("nobody", (0, 0)))

    assert indexes(response) == [*range(MANY), 0]
    assert [part.error_code for part in parts(response)] == [0] * MANY + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert values(parts(response)[7].records) == ["x"]


def test_each_partition_is_read_as_it_is_at_its_turn(world: World) -> None:
    client = TurnsClient(world, version=10)  # consumers since v11 may read from followers
    answer = client.begin(everything())

    world.produce("a", batch("late"), index=MANY - 1)
    world.change_partition("a", MANY - 2, leader=2)
    response = client.finish(answer)

    assert values(parts(response)[-1].records) == ["late"]
    assert parts(response)[-2].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_connection_that_closes_gives_the_segments_back(world: World, tmp_path: Path) -> None:
    for index in range(MANY):
        world.produce("a", batch("x"), index=index)
    client = TurnsClient(world)

    for turns_before in range(10):
        answer = client.begin(everything())
        for _ in range(turns_before):
            client.loop.turn()
        assert not answer.is_done, turns_before
        answer.abandon()
        client.loop.run()
        assert len(client.loop.turns) == 0, turns_before
    for partition in world.replica_manager.partitions():
        partition.log.close()

    open_files = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
    assert [path for path in open_files if path.startswith(str(tmp_path))] == []


def test_others_are_served_while_a_thread_brings_in_what_one_partition_needs(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.produce("a", batch("x"), index=5)
    (tmp_path / "file").write_bytes(b"x")
    missing = [ColdRead(os.open(tmp_path / "file", os.O_RDONLY), 0, 1)]
    read = Partition.read

    def read_cold_once(self: Partition, *arguments: Any) -> Any:
        if self.partition == 5 and missing:
            raise missing.pop()
        return read(self, *arguments)

    monkeypatch.setattr(Partition, "read", read_cold_once)
    executor, client = ManualExecutor(), TurnsClient(world)
    client.handler = fetch.FetchHandler(world.services()._replace(run_blocking=executor)).handle
    answer = client.begin(everything())
    client.loop.run()
    assert not answer.is_done

    executor.run()

    assert values(parts(client.finish(answer))[5].records) == ["x"]


# -- waiting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("min_bytes", [1, 2])
@pytest.mark.parametrize("index", [0, MANY - 1])
def test_a_change_between_any_two_turns_is_not_missed(world: World, index: int, min_bytes: int) -> None:
    for turns_before in range(1, 12):
        client = TurnsClient(world)
        end_offsets = [(each, turns_before - 1 if each == index else 0) for each in range(MANY)]
        answer = client.begin(topic("a", *end_offsets), max_wait_ms=500, min_bytes=min_bytes)
        for _ in range(turns_before):
            client.loop.turn()

        world.produce("a", batch(f"{turns_before}"), index=index)

        assert values(parts(client.finish(answer))[index].records) == [f"{turns_before}"]
    assert (world.clock.pending_timers, world.replica_manager.fetch_purgatory.size) == ([], 0)


def test_a_connection_that_closes_takes_its_wait_away(world: World) -> None:
    client = TurnsClient(world)
    answer = client.begin(everything(), max_wait_ms=500)
    while not world.replica_manager.fetch_purgatory.size:
        client.loop.turn()

    answer.abandon()

    assert (world.replica_manager.fetch_purgatory.size, world.clock.pending_timers) == (0, [])
    client.loop.run()
    assert len(client.loop.turns) == 0


# -- sessions --------------------------------------------------------------------------------------------------------


def begin_session(client: TurnsClient) -> int:
    response = client.all(everything(), session_epoch=0)
    assert response.session_id
    return response.session_id


def test_a_sessions_wait_misses_no_change_between_any_two_turns(world: World) -> None:
    for turns_before in range(1, 12):
        client = TurnsClient(world)
        session_id = client.all(topic("a", (0, turns_before - 1), *((index, 0) for index in range(1, MANY))), session_epoch=0).session_id
        answer = client.begin(session_id=session_id, session_epoch=1, max_wait_ms=500, min_bytes=2)
        for _ in range(turns_before):
            client.loop.turn()

        world.produce("a", batch("x"), index=0)

        assert indexes(client.finish(answer)) == [0], turns_before


def test_a_wait_within_a_session_that_ends_with_many_changes_is_read_in_turns(world: World) -> None:
    client = TurnsClient(world)
    session_id = begin_session(client)
    client.all(session_id=session_id, session_epoch=1)
    waiting = client.start(session_id=session_id, session_epoch=2, max_wait_ms=500, min_bytes=1 << 20)
    for index in range(MANY):
        world.produce("a", batch("x"), index=index)

    world.clock.advance(500)

    assert waiting.is_done and not isinstance(waiting.value, FetchResponse)
    assert sorted(indexes(client.finish(waiting))) == list(range(MANY))


def test_a_later_request_of_the_session_ends_the_one_that_is_under_way(world: World) -> None:
    client = TurnsClient(world)
    session_id = begin_session(client)
    overtaken = client.begin(session_id=session_id, session_epoch=1)

    later = client.all(session_id=session_id, session_epoch=2)

    assert later.error_code == ErrorCode.NONE
    assert client.finish(overtaken).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_that_ends_meanwhile_is_watched_by_nobody(world: World) -> None:
    for turns_before in range(1, 12):
        client = TurnsClient(world)
        session_id = begin_session(client)
        answer = client.begin(session_id=session_id, session_epoch=1)
        for _ in range(turns_before):
            client.loop.turn()

        client.fetch(session_id=session_id, session_epoch=-1)
        client.finish(answer)

        assert not any(partition.sessions for partition in world.replica_manager.partitions()), turns_before


def test_a_session_that_grows_in_turns_beyond_the_room_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = TurnsClient(world)
    session_id = client.fetch(topic("a", (0, 0)), session_epoch=0).session_id
    monkeypatch.setattr(fetch_session_cache, "CACHED_PARTITIONS_MAX", MANY - 1)

    response = client.all(everything(), session_id=session_id, session_epoch=1)

    assert (response.error_code, response.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    assert not any(partition.sessions for partition in world.replica_manager.partitions())


def test_session_that_ended_watches_nothing_more_when_its_last_request_ends_amid_the_read(world: World) -> None:
    """The request waited as the session ended, and is read in turns when its time is over. No answer ends the watch."""
    client = TurnsClient(world)
    session_id = begin_session(client)
    client.all(session_id=session_id, session_epoch=1)
    waiting = client.start(session_id=session_id, session_epoch=2, max_wait_ms=500, min_bytes=1 << 20)
    assert isinstance(waiting, Deferred)
    for index in range(3 * FEW):
        world.produce("a", batch("x"), index=index)
    client.fetch(session_id=session_id, session_epoch=-1)

    world.clock.advance(500)
    reading = waiting.take()
    assert isinstance(reading, GeneratorType)
    reading.close()

    assert [partition for partition in world.replica_manager.partitions() if partition.sessions] == []
