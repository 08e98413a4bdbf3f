"""Requests for what only the disk has: tried again once a thread has brought it in, never kept from an answer."""

from __future__ import annotations

import asyncio
import gc
import os
import tempfile
import weakref
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.loop.cold_reads import TRIES_MAX, bring_in, read_in_turns
from broker.loop.deferred import Deferred
from storage.disk import SystemDisk
from storage.page_cache import ColdRead, read_at


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """Not tmp_path, which may be in memory, where no page is ever missing."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.fixture
def cold(on_disk: Path) -> Callable[[], ColdRead]:
    path = on_disk / "file"
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


async def result_of(work: Generator[Deferred, bool, Any]) -> Any:
    """What the read returns; each Deferred that it yields is awaited."""
    try:
        arrival = next(work)
        while True:
            arrival = work.send(await arrived(arrival))
    except StopIteration as e:
        return e.value


async def arrived(arrival: Deferred) -> bool:
    done = asyncio.get_running_loop().create_future()
    arrival.when_done(done.set_result)
    has_failed: bool = await asyncio.wait_for(done, 60)
    return has_failed


async def test_a_read_is_tried_again_while_something_is_missing(cold: Callable[[], ColdRead]) -> None:
    tries: list[None] = []

    def read() -> str:
        tries.append(None)
        if len(tries) < 3:
            raise cold()
        return "records"

    assert await result_of(read_in_turns(read, run_blocking)) == "records"
    assert len(tries) == 3


async def test_what_a_first_try_missed_is_awaited_before_the_next(cold: Callable[[], ColdRead]) -> None:
    tries: list[None] = []
    arrival = bring_in(cold(), run_blocking)
    work = read_in_turns(lambda: tries.append(None), run_blocking, arrival)

    assert next(work) is arrival and tries == []
    with pytest.raises(StopIteration):
        work.send(await arrived(arrival))
    assert len(tries) == 1


async def test_a_read_that_never_finds_its_pages_waits_in_the_end(cold: Callable[[], ColdRead], on_disk: Path) -> None:
    tries: list[bool] = []

    def read() -> int:
        tries.append(may_wait(on_disk / "file"))
        if not tries[-1]:
            raise cold()
        return len(tries)

    assert await result_of(read_in_turns(read, run_blocking)) == TRIES_MAX + 1
    assert tries == [False] * TRIES_MAX + [True]


def may_wait(path: Path) -> bool:
    """Whether a read of something that is not in memory would wait for the disk."""
    waits: list[None] = []

    def pread(fd: int, size: int, position: int, /) -> bytes:
        waits.append(None)
        return os.pread(fd, size, position)

    disk = SystemDisk()
    disk.pread = pread
    fd = os.open(path, os.O_RDONLY)
    try:
        read_at(fd, 1, 0, disk)
    finally:
        os.close(fd)
    return bool(waits)


async def test_a_failing_disk_is_met_by_the_read_that_waits(cold: Callable[[], ColdRead], on_disk: Path) -> None:
    class Broken(ColdRead):
        def bring_in(self) -> None:
            super().bring_in()
            raise OSError(5, "Input/output error")

    def read() -> bool:
        if may_wait(on_disk / "file"):
            return True
        missing = cold()
        missing.__class__ = Broken
        raise missing

    assert await result_of(read_in_turns(read, run_blocking)) is True


async def test_what_the_read_raises_is_raised(cold: Callable[[], ColdRead]) -> None:
    def read() -> None:
        raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"):
        await result_of(read_in_turns(read, run_blocking, bring_in(cold(), run_blocking)))


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
            has_failed = await arrived(next(work))
        with pytest.raises(StopIteration, match="read"):
            work.send(has_failed)
        del work
        await asyncio.sleep(0)
        assert attempts[0]() is None
    finally:
        gc.enable()
