"""Requests for what only the disk has: tried again once a thread has brought it in, never kept from an answer."""

from __future__ import annotations

import asyncio
import gc
import os
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.loop.cold_reads import TRIES_MAX, read_in_turns, try_again_when_read
from broker.loop.deferred import Deferred
from storage.page_cache import ColdRead


@pytest.fixture
def cold(tmp_path: Path) -> Callable[[], ColdRead]:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))

    def make() -> ColdRead:
        fd = os.open(path, os.O_RDONLY)
        try:
            return ColdRead(fd, 0, 100)
        finally:
            os.close(fd)

    return make


def run_blocking(function: Callable[[], Any]) -> asyncio.Future[Any]:
    return asyncio.get_running_loop().run_in_executor(None, function)


async def result_of(answer: Deferred) -> Any:
    done = asyncio.get_running_loop().create_future()
    answer.when_done(done.set_result)
    return await asyncio.wait_for(done, 60)


async def test_the_request_is_tried_again_while_something_is_missing(cold: Callable[[], ColdRead]) -> None:
    tries: list[bool] = []

    def attempt(may_wait: bool) -> str:
        tries.append(may_wait)
        if len(tries) < 3:
            raise cold()
        return "records"

    assert await result_of(try_again_when_read(cold(), attempt, run_blocking)) == "records"
    assert tries == [False, False, False]


async def test_a_request_that_never_finds_its_pages_waits_in_the_end(cold: Callable[[], ColdRead]) -> None:
    tries: list[bool] = []

    def attempt(may_wait: bool) -> int:
        tries.append(may_wait)
        if not may_wait:
            raise cold()
        return len(tries)

    assert await result_of(try_again_when_read(cold(), attempt, run_blocking)) == TRIES_MAX


async def test_a_failing_disk_is_met_by_the_attempt_that_waits(cold: Callable[[], ColdRead]) -> None:
    class Broken(ColdRead):
        def bring_in(self) -> None:
            super().bring_in()
            raise OSError(5, "Input/output error")

    missing = cold()
    missing.__class__ = Broken

    assert await result_of(try_again_when_read(missing, lambda may_wait: may_wait, run_blocking)) is True


async def test_what_the_attempt_raises_is_the_answer(cold: Callable[[], ColdRead]) -> None:
    def attempt(may_wait: bool) -> None:
        raise ValueError("gone")

    assert isinstance(await result_of(try_again_when_read(cold(), attempt, run_blocking)), ValueError)


async def test_an_attempt_that_parks_is_followed(cold: Callable[[], ColdRead]) -> None:
    parked = Deferred()
    answer = try_again_when_read(cold(), lambda may_wait: parked, run_blocking)
    asyncio.get_running_loop().call_later(0.01, parked.complete, "later")

    assert await result_of(answer) == "later"


async def test_nothing_is_tried_for_a_connection_that_is_gone(cold: Callable[[], ColdRead]) -> None:
    reading = asyncio.get_running_loop().create_future()
    missing = cold()
    tries: list[bool] = []
    answer = try_again_when_read(missing, tries.append, lambda function: reading)

    answer.abandon()
    reading.set_result(missing.bring_in())
    await asyncio.sleep(0)

    assert reading.done()
    assert tries == []


async def test_what_a_read_in_turns_waited_for_is_free_once_it_has_come(cold: Callable[[], ColdRead]) -> None:
    attempts: list[weakref.ref[ColdRead]] = []

    def read() -> str:
        if attempts:
            return "read"
        missing = cold()
        attempts.append(weakref.ref(missing))
        try:
            raise missing
        finally:
            del missing

    gc.disable()  # a cycle would stay
    try:
        with ThreadPoolExecutor(1) as executor:  # whose thread, too, has let go of it at its end
            work = read_in_turns(read, partial(asyncio.get_running_loop().run_in_executor, executor))
            has_failed = await result_of(next(work))
        with pytest.raises(StopIteration, match="read"):
            work.send(has_failed)
        del work
        await asyncio.sleep(0)
        assert attempts[0]() is None
    finally:
        gc.enable()
