"""Retention: what others hear of what it changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.background.background import Background
from broker.loop.turns import SLICE_US
from config.topic import LogConfig
from storage.log import Log
from storage.log_manager import LogManager
from tests.broker.handlers.produce_fetch.test_fetch import Client, only, parts, topic
from tests.broker.replication.world import World, batch

RETENTION_INTERVAL_MS = 1000


def make_world(directory: Path) -> tuple[World, LogManager]:
    log_manager = LogManager([directory / "data"], random_source=random.Random(1))
    log_manager.open(config_of=lambda name: LogConfig(), now_ms=0)
    return World(directory, logs=log_manager, log_initial_task_delay_ms=RETENTION_INTERVAL_MS), log_manager


async def run_at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def slow_down(world: World, log_manager: LogManager, meanwhile: Callable[[], None]) -> None:
    """Each log takes a whole slice of the loop's time, and `meanwhile` is called in the turn after it."""
    enforce = log_manager.enforce_retention_of

    def enforce_slowly(log: Log, now_ms: int) -> int:
        world.clock.stall(SLICE_US / 1000)
        asyncio.get_running_loop().call_soon(meanwhile)
        return enforce(log, now_ms)

    log_manager.enforce_retention_of = enforce_slowly  # type: ignore[method-assign]


async def run_retention(world: World, log_manager: LogManager) -> None:
    background = Background(world.config, world.clock, log_manager, world.replica_manager, run_at_once)
    background.start()
    world.clock.advance(RETENTION_INTERVAL_MS)
    stopped = asyncio.get_running_loop().create_task(background.stop())  # waits for the tasks that have begun
    while not stopped.done():
        await asyncio.sleep(0)
        world.executor.run()  # the flush that begins at the same time
        world.clock.advance(0)  # its next round begins a turn later


async def test_session_is_told_of_a_log_start_that_retention_moved(tmp_path: Path) -> None:
    world, log_manager = make_world(tmp_path)
    world.create_topic("a", retention_bytes="0")
    world.produce("a", batch("x"))
    client = Client(world)
    full = client.fetch(topic("a", (0, 1)), session_epoch=0)
    quiet = client.fetch(session_id=full.session_id, session_epoch=1)

    await run_retention(world, log_manager)
    told = client.fetch(session_id=full.session_id, session_epoch=2)

    assert parts(quiet) == []
    assert only(told).log_start_offset == 1


async def test_retention_serves_others_between_logs(tmp_path: Path) -> None:
    world, log_manager = make_world(tmp_path)
    seen: list[int] = []
    slow_down(world, log_manager, lambda: seen.append(sum(log.log_start_offset for log in log_manager.logs())))
    world.create_topic("a", partitions=3, retention_bytes="0")
    for index in (0, 2):
        world.produce("a", batch("x"), index=index)

    await run_retention(world, log_manager)

    assert seen == [1, 1, 2]


async def test_topic_that_is_deleted_during_retention_is_left_alone(tmp_path: Path) -> None:
    world, log_manager = make_world(tmp_path)
    slow_down(world, log_manager, lambda: None if world.metadata.find_topic("b") is None else world.delete_topic("b"))
    world.create_topic("a", partitions=2, retention_bytes="0")
    world.create_topic("b", retention_bytes="0")
    world.produce("b", batch("x"))

    await run_retention(world, log_manager)

    assert {log.topic for log in log_manager.logs()} == {"a"}
    assert log_manager.online_directories
