"""Fetch sessions that watch their partitions: what they look at, when their requests wake, and how they end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.handlers.produce_fetch import fetch
from broker.replication.fetch.fetch_session import FULL_LOOK_INTERVAL_MS
from broker.replication.partition import Partition
from protocol.errors import ErrorCode
from tests.broker.handlers.produce_fetch.test_fetch import Client, only, parts, topic
from tests.broker.replication.world import World, batch, values


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.create_topic("a", partitions=3)
    return world


def test_idle_session_looks_at_what_changed_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka reads every partition of the session at each request; here an idle one costs nothing."""
    client = Client(world)
    full = client.fetch(topic("a", (0, 0), (1, 0), (2, 0)), session_epoch=0)
    client.fetch(session_id=full.session_id, session_epoch=1)
    looked_at: list[int] = []
    look = Partition.is_idle_for
    monkeypatch.setattr(Partition, "is_idle_for", lambda self, *asked: looked_at.append(self.partition) or look(self, *asked))

    client.start(session_id=full.session_id, session_epoch=2, max_wait_ms=500).abandon()
    assert looked_at == []
    world.produce("a", batch("x"), index=1)
    news = client.fetch(session_id=full.session_id, session_epoch=3)

    assert [part.partition_index for part in parts(news)] == [1]
    assert set(looked_at) <= {1}


def test_session_waits_for_partitions_that_had_nothing(world: World) -> None:
    client = Client(world)
    full = client.fetch(topic("a", (0, 0), (1, 0)), session_epoch=0)
    client.fetch(session_id=full.session_id, session_epoch=1)
    waiting = client.start(session_id=full.session_id, session_epoch=2, max_wait_ms=500)

    world.produce("a", batch("x"), index=1)

    assert values(only(client.response(waiting)).records) == ["x"]
    assert world.clock.pending_timers == []


def test_session_counts_the_bytes_of_all_its_partitions(world: World) -> None:
    size = len(batch("x"))
    client = Client(world)
    full = client.fetch(topic("a", (0, 0), (1, 0)), session_epoch=0)
    client.fetch(session_id=full.session_id, session_epoch=1)
    world.produce("a", batch("x"), index=0)
    waiting = client.start(session_id=full.session_id, session_epoch=2, max_wait_ms=500, min_bytes=3 * size)

    world.produce("a", batch("y"), index=1)
    assert not waiting.is_done
    world.produce("a", batch("z"), index=1)

    assert [values(part.records) for part in parts(client.response(waiting))] == [["x"], ["y", "z"]]


def test_session_hears_of_a_partition_that_is_deleted_and_made_again(world: World, tmp_path: Path) -> None:
    client = Client(world)
    full = client.fetch(topic("a", (0, 0)), session_epoch=0)
    client.fetch(session_id=full.session_id, session_epoch=1)
    waiting = client.start(session_id=full.session_id, session_epoch=2, max_wait_ms=500)

    world.delete_topic("a")
    gone = only(client.response(waiting))
    again = only(client.fetch(session_id=full.session_id, session_epoch=3))
    world.logs.directory = tmp_path / "anew"
    world.create_topic("a")
    world.produce("a", batch("x"))
    news = only(client.fetch(session_id=full.session_id, session_epoch=4))

    assert gone.error_code == again.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert values(news.records) == ["x"]


def test_session_that_changes_its_isolation_looks_at_all(world: World) -> None:
    client = Client(world)
    world.produce("a", batch("x"))
    world.partition("a").log.last_stable_offset = 0  # as if a transaction were open
    full = client.fetch(topic("a", (0, 0)), session_epoch=0, isolation_level=1)
    nothing = client.fetch(session_id=full.session_id, session_epoch=1, isolation_level=1)

    news = client.fetch(session_id=full.session_id, session_epoch=2, isolation_level=0)

    assert parts(nothing) == []
    assert values(only(news).records) == ["x"]


def test_session_that_ended_is_told_nothing_more(world: World) -> None:
    client = Client(world)
    full = client.fetch(topic("a", (0, 0)), session_epoch=0)
    client.fetch(session_id=full.session_id, session_epoch=1)
    assert len(world.partition("a").sessions) == 1

    client.fetch(session_id=full.session_id, session_epoch=-1)

    assert world.partition("a").sessions == {}


def test_request_that_waits_is_answered_though_its_session_ended(world: World) -> None:
    client = Client(world)
    full = client.fetch(topic("a", (0, 0)), session_epoch=0)
    client.fetch(session_id=full.session_id, session_epoch=1)
    waiting = client.start(session_id=full.session_id, session_epoch=2, max_wait_ms=500)

    client.fetch(session_id=full.session_id, session_epoch=-1)
    world.produce("a", batch("x"))
    assert values(only(client.response(waiting)).records) == ["x"]
    world.produce("a", batch("y"))

    assert world.partition("a").sessions == {}


def test_session_that_ended_watches_nothing_more_when_the_connection_of_the_request_that_waits_ends(world: World) -> None:
    """No answer ends the watch then, and an idle partition would keep the session for ever."""
    client = Client(world)
    full = client.fetch(topic("a", (0, 0), (1, 0)), session_epoch=0)
    client.fetch(session_id=full.session_id, session_epoch=1)
    waiting = client.start(session_id=full.session_id, session_epoch=2, max_wait_ms=500)
    client.fetch(session_id=full.session_id, session_epoch=-1)
    assert [len(world.partition("a", index).sessions) for index in range(2)] == [1, 1]

    waiting.abandon()

    assert [world.partition("a", index).sessions for index in range(2)] == [{}, {}]


def test_log_start_offset_that_moved_is_told_within_the_interval_of_full_looks(world: World) -> None:
    client = Client(world)
    world.produce("a", batch("x"))
    full = client.fetch(topic("a", (0, 1)), session_epoch=0)
    client.fetch(session_id=full.session_id, session_epoch=1)
    world.partition("a").log.set_log_start_offset(1)

    world.clock.advance(FULL_LOOK_INTERVAL_MS)
    news = only(client.fetch(session_id=full.session_id, session_epoch=2))

    assert news.log_start_offset == 1


def test_reader_of_the_log_end_gets_what_is_not_replicated_yet(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", replicas=(1, 2))
    world.produce("a", batch("x"))
    client = Client(world)
    asked: dict[str, Any] = {"replica_id": fetch.FUTURE_LOCAL_REPLICA_ID, "max_wait_ms": 500}
    full = client.fetch(topic("a", (0, 0)), session_epoch=0, **asked)
    waiting = client.start(topic("a", (0, 1)), session_id=full.session_id, session_epoch=1, **asked)

    world.produce("a", batch("y"))

    assert values(only(full).records) == ["x"]
    assert values(only(client.response(waiting)).records) == ["y"]


def test_consumers_in_a_session_wait_for_replication(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.create_topic("a", replicas=(1, 2))
    client = Client(world)
    full = client.fetch(topic("a", (0, 0)), session_epoch=0)
    waiting = client.start(session_id=full.session_id, session_epoch=1, max_wait_ms=500)

    world.produce("a", batch("x"))
    assert not waiting.is_done
    world.follower_fetch(2, "a", 1)

    assert values(only(client.response(waiting)).records) == ["x"]
