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
from protocol.messages.fetch import FetchResponse, FetchTopic, ForgottenTopic
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


def everything(offset: int = 0, **fields: Any) -> FetchTopic:
    return topic("a", *((index, offset) for index in range(MANY)), **fields)


def indexes(response: FetchResponse) -> list[int]:
    return [part.partition_index for part in parts(response)]


# -- at once ---------------------------------------------------------------------------------------------------------


def test_every_partition_is_answered_in_the_requests_order(world: World) -> None:
    world.produce("a", batch("x"), index=7)

    response = TurnsClient(world).all(everything(), topic("nobody", (0, 0)))

    assert indexes(response) == [*range(MANY), 0]
    assert [part.error_code for part in parts(response)] == [0] * MANY + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert values(parts(response)[7].records) == ["x"]


def test_partition_named_twice_is_read_as_it_is_named_last_in_its_first_place(world: World) -> None:
    world.produce("a", batch("0"), index=3)
    world.produce("a", batch("1"), index=3)

    response = TurnsClient(world).all(everything(), topic("a", (3, 1)))

    assert indexes(response) == list(range(MANY))
    assert values(parts(response)[3].records) == ["1"]


def test_limits_of_the_request_hold_over_all_turns(world: World) -> None:
    for index in range(MANY):
        world.produce("a", batch("x"), index=index)
    size = len(batch("x"))

    response = TurnsClient(world).all(everything(), max_bytes=5 * size)
    smaller_than_a_batch = TurnsClient(world).all(everything(), max_bytes=1)

    assert sum(1 for part in parts(response) if part.records) == 5
    assert [index for index, part in enumerate(parts(smaller_than_a_batch)) if part.records] == [0]


def test_each_partition_is_read_as_it_is_at_its_turn(world: World) -> None:
    client = TurnsClient(world, version=10)  # consumers since v11 may read from followers
    answer = client.begin(everything())

    world.produce("a", batch("late"), index=MANY - 1)
    world.change_partition("a", MANY - 2, leader=2)
    response = client.finish(answer)

    assert values(parts(response)[-1].records) == ["late"]
    assert parts(response)[-2].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("turns_before", range(10))
def test_a_connection_that_closes_gives_the_segments_back(world: World, tmp_path: Path, turns_before: int) -> None:
    for index in range(MANY):
        world.produce("a", batch("x"), index=index)
    client = TurnsClient(world)
    answer = client.begin(everything())
    for _ in range(turns_before):
        client.loop.turn()
    assert not answer.is_done

    answer.abandon()
    for partition in world.replica_manager.partitions():
        partition.log.close()

    open_files = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
    assert [path for path in open_files if path.startswith(str(tmp_path))] == []
    client.loop.run()
    assert len(client.loop.turns) == 0


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
def test_a_fetch_of_many_waits_until_one_has_something(world: World, min_bytes: int) -> None:
    client = TurnsClient(world)
    answer = client.begin(everything(), max_wait_ms=500, min_bytes=min_bytes)
    client.loop.run()
    assert not answer.is_done

    world.produce("a", batch("x"), index=9)
    response = client.finish(answer)

    assert [index for index, part in enumerate(parts(response)) if part.records] == [9]
    assert (world.clock.pending_timers, world.replica_manager.fetch_purgatory.size) == ([], 0)


def test_a_fetch_of_many_ends_at_its_timeout(world: World) -> None:
    client = TurnsClient(world)
    answer = client.begin(everything(), max_wait_ms=500)
    client.loop.run()

    world.clock.advance(500)
    response = client.finish(answer)

    assert indexes(response) == list(range(MANY))
    assert not any(part.records for part in parts(response))


@pytest.mark.parametrize("min_bytes", [1, 2])
@pytest.mark.parametrize("index", [0, MANY - 1])
@pytest.mark.parametrize("turns_before", range(1, 12))
def test_a_change_between_any_two_turns_is_not_missed(world: World, index: int, turns_before: int, min_bytes: int) -> None:
    client = TurnsClient(world)
    answer = client.begin(everything(), max_wait_ms=500, min_bytes=min_bytes)
    for _ in range(turns_before):
        client.loop.turn()

    world.produce("a", batch("x"), index=index)

    assert values(parts(client.finish(answer))[index].records) == ["x"]


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


def test_a_session_of_many_tells_what_is_new(world: World) -> None:
    client = TurnsClient(world)
    session_id = begin_session(client)
    first = client.all(session_id=session_id, session_epoch=1)

    world.produce("a", batch("x"), index=9)
    news = client.fetch(session_id=session_id, session_epoch=2)

    assert parts(first) == []
    assert indexes(news) == [9]


def test_a_session_of_many_that_all_changed_is_read_in_turns(world: World) -> None:
    client = TurnsClient(world)
    session_id = begin_session(client)
    client.all(session_id=session_id, session_epoch=1)
    for index in range(MANY):
        world.produce("a", batch("x"), index=index)

    response = client.all(session_id=session_id, session_epoch=2)

    assert sorted(indexes(response)) == list(range(MANY))


@pytest.mark.parametrize("turns_before", range(1, 12))
def test_a_sessions_wait_misses_no_change_between_any_two_turns(world: World, turns_before: int) -> None:
    client = TurnsClient(world)
    session_id = begin_session(client)
    answer = client.begin(session_id=session_id, session_epoch=1, max_wait_ms=500, min_bytes=2)
    for _ in range(turns_before):
        client.loop.turn()

    world.produce("a", batch("x"), index=0)

    assert indexes(client.finish(answer)) == [0]


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


def test_a_request_may_add_and_forget_many(world: World) -> None:
    world.create_topic("b", partitions=MANY)
    client = TurnsClient(world)
    session_id = client.fetch(topic("b", (0, 0)), session_epoch=0).session_id

    added = client.all(everything(), session_id=session_id, session_epoch=1)
    gone = ForgottenTopic(topic="a", partitions=list(range(MANY)))
    client.fetch(session_id=session_id, session_epoch=2, forgotten_topics_data=[gone])

    session = client.sessions.find(session_id)
    assert added.error_code == ErrorCode.NONE
    assert session is not None
    assert [target.topic for target in session.targets.values()] == ["b"]
    assert not any(partition.sessions for partition in world.replica_manager.partitions() if partition.topic == "a")


def test_a_session_that_has_nothing_left_ends(world: World) -> None:
    client = TurnsClient(world)
    session_id = begin_session(client)
    gone = ForgottenTopic(topic="a", partitions=list(range(MANY)))

    client.fetch(session_id=session_id, session_epoch=1, forgotten_topics_data=[gone])

    assert client.sessions.find(session_id) is None


def test_a_later_request_of_the_session_ends_the_one_that_is_under_way(world: World) -> None:
    client = TurnsClient(world)
    session_id = begin_session(client)
    overtaken = client.begin(session_id=session_id, session_epoch=1)

    later = client.all(session_id=session_id, session_epoch=2)

    assert later.error_code == ErrorCode.NONE
    assert client.finish(overtaken).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize("turns_before", range(1, 12))
def test_a_session_that_ends_meanwhile_is_watched_by_nobody(world: World, turns_before: int) -> None:
    client = TurnsClient(world)
    session_id = begin_session(client)
    answer = client.begin(session_id=session_id, session_epoch=1)
    for _ in range(turns_before):
        client.loop.turn()

    client.fetch(session_id=session_id, session_epoch=-1)
    client.finish(answer)

    assert not any(partition.sessions for partition in world.replica_manager.partitions())


@pytest.mark.parametrize(("session_id", "epoch", "code"), [(5, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)])
def test_errors_of_the_session_are_told(world: World, session_id: int, epoch: int, code: ErrorCode) -> None:
    response = TurnsClient(world).all(everything(), session_id=session_id, session_epoch=epoch)

    assert (response.error_code, response.responses) == (code, [])


def test_a_session_that_grows_in_turns_beyond_the_room_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = TurnsClient(world)
    session_id = client.fetch(topic("a", (0, 0)), session_epoch=0).session_id
    monkeypatch.setattr(fetch_session_cache, "CACHED_PARTITIONS_MAX", MANY - 1)

    response = client.all(everything(), session_id=session_id, session_epoch=1)

    assert (response.error_code, response.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    assert not any(partition.sessions for partition in world.replica_manager.partitions())


def test_a_session_keeps_no_deleted_partitions_alive(world: World) -> None:
    """Its client may never come back."""
    client = TurnsClient(world)
    session_id = client.all(everything(), session_epoch=0).session_id
    client.all(everything(), session_id=session_id, session_epoch=1)
    client.fetch(session_id=session_id, session_epoch=2)
    partition = world.partition("a", 3)
    (session,) = partition.sessions

    world.delete_topic("a")

    assert not partition.sessions
    assert not session.watched
    response = client.all(session_id=session_id, session_epoch=3)
    assert {part.error_code for part in parts(response)} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
