"""The worker's process: what it gets, what it answers, how it dies and ends."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.loop.clock import SystemClock
from broker.loop.deferred import Deferred
from broker.worker import process as worker_process
from broker.worker.jobs import NICENESS, Outcome
from broker.worker.main import JobError
from broker.worker.messages import INLINE_BYTES_MAX
from broker.worker.process import LONG_BYTES_MAX, WorkerDiedError, WorkerProcess
from tests.broker.worker.jobs import NAME


@asynccontextmanager
async def running() -> AsyncIterator[WorkerProcess]:
    loop = asyncio.get_running_loop()

    def run_blocking(function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        return loop.run_in_executor(None, function, *arguments)

    worker = WorkerProcess(loop, SystemClock(loop), run_blocking, NICENESS)
    try:
        yield worker
    finally:
        await worker.close()


def submit(worker: WorkerProcess, job: str, arguments: Any = None, *buffers: bytes, is_short: bool = True) -> Deferred:
    return worker.submit(f"{NAME}:{job}", arguments, [memoryview(buffer) for buffer in buffers], is_short=is_short)


async def outcome_of(answer: Deferred) -> Any:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    answer.when_done(done.set_result)
    return await asyncio.wait_for(done, 60)


@pytest.mark.parametrize("sizes", [(), (0,), (3, 0, 5), (INLINE_BYTES_MAX,), (INLINE_BYTES_MAX + 1,), (5_000_000, 0, 7)])
async def test_bytes_go_there_and_come_back(sizes: tuple[int, ...]) -> None:
    buffers = [os.urandom(size) for size in sizes]
    async with running() as worker:
        outcome = await outcome_of(submit(worker, "echo", {"a": 1}, *buffers))

    assert isinstance(outcome, Outcome)
    assert (outcome.value, [bytes(buffer) for buffer in outcome.buffers]) == ({"a": 1}, [buffer[::-1] for buffer in buffers])


async def test_many_at_once_are_each_answered() -> None:
    buffers = [bytes([number]) * (number * 3_000) for number in range(200)]
    async with running() as worker:
        answers = [submit(worker, "echo", number, buffer, is_short=number % 2 == 0) for number, buffer in enumerate(buffers)]
        outcomes = [await outcome_of(answer) for answer in answers]

    assert [(outcome.value, bytes(outcome.buffers[0])) for outcome in outcomes] == list(enumerate(buffers))


async def test_the_process_has_no_descriptor_of_ours_but_its_socket_and_stderr_and_a_group_of_its_own() -> None:
    """A terminal's signals go to a group. The session is ours: cores are shared among sessions before any niceness counts."""
    with open(os.devnull) as ours:
        os.set_inheritable(ours.fileno(), False)
        async with running() as worker:
            process_id, descriptors, group, session, niceness = (await outcome_of(submit(worker, "describe"))).value

    sockets = [name for name in descriptors.values() if name.startswith("socket:")]
    assert set(descriptors) - {0, 1, 2} == {number for number, name in descriptors.items() if name in sockets and number > 2}
    assert (len([number for number in descriptors if number > 2]), group, session) == (1, process_id, os.getsid(0))
    assert niceness == min(os.getpriority(os.PRIO_PROCESS, 0) + NICENESS, 19)


async def test_a_job_whose_process_dies_is_done_by_the_next_unless_it_kills_that_too() -> None:
    async with running() as worker:
        await outcome_of(submit(worker, "echo"))
        first = worker.process_id
        deadly, harmless = submit(worker, "die"), submit(worker, "echo", "harmless")

        assert isinstance(await outcome_of(deadly), WorkerDiedError)
        assert (await outcome_of(harmless)).value == "harmless"
        assert worker.process_id not in (None, first)


async def test_what_a_job_raises_is_its_outcome() -> None:
    async with running() as worker:
        told, copied = [await outcome_of(submit(worker, "fail", argument)) for argument in ("unpicklable", "why")]
        unknown = await outcome_of(submit(worker, "no_such_job"))

    assert isinstance(told, JobError) and "no copy of this" in str(told)
    assert isinstance(copied, ValueError) and copied.args == ("why",)
    assert isinstance(unknown, AttributeError)


async def test_withdrawn_jobs_make_room_for_others() -> None:
    """Two that would never end, one of them not handed over yet, because the first has all the bytes that may be there."""
    content = bytes(LONG_BYTES_MAX)
    async with running() as worker:
        endless = [submit(worker, "endless", None, content, is_short=False) for _ in range(2)]
        behind = submit(worker, "echo", "behind", is_short=False)
        await outcome_of(submit(worker, "echo"))
        assert not behind.is_done

        for job in endless:
            job.abandon()

        assert (await outcome_of(behind)).value == "behind"


async def test_a_job_that_cannot_be_handed_over_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when descriptors are short. It has all the bytes that may be there, and no answer comes that would let the next one go."""

    def fail(buffers: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    async with running() as worker:
        await outcome_of(submit(worker, "echo"))
        with monkeypatch.context() as patch:
            patch.setattr(worker_process, "memory_file", fail)
            refused = submit(worker, "echo", None, bytes(LONG_BYTES_MAX), is_short=False)
            behind = submit(worker, "echo", "behind", b"x", is_short=False)
            assert isinstance(await outcome_of(refused), OSError)

        assert (await outcome_of(behind)).value == "behind"


async def test_an_idle_process_goes_and_another_comes_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "IDLE_MS", 1)
    monkeypatch.setattr(worker_process, "START_INTERVAL_MS", 0)
    async with running() as worker:
        first = (await outcome_of(submit(worker, "describe"))).value[0]
        while worker.process_id is not None:
            await asyncio.sleep(0.01)

        assert (await outcome_of(submit(worker, "describe"))).value[0] != first


_PARENT = f"""
import asyncio, sys
sys.path[:] = {sys.path!r}
from tests.broker.worker.test_process import outcome_of, running, submit

async def main():
    async with running() as worker:
        submit(worker, "endless", is_short=False)
        print((await outcome_of(submit(worker, "describe"))).value[0], flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def test_the_process_ends_with_its_broker_however_that_ends() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker_id = int(parent.stdout.readline())
    descriptor = os.pidfd_open(worker_id)
    try:
        parent.kill()
        parent.wait()

        assert _is_gone(descriptor, timeout_s=10)
    finally:
        parent.stdout.close()
        os.close(descriptor)


def _is_gone(pidfd: int, timeout_s: float) -> bool:
    import select

    ready, _, _ = select.select([pidfd], [], [], timeout_s)
    if not ready:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    return bool(ready)
