"""An error in a callback fails its test, whichever loop swallowed it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
TESTS = """
import asyncio, gc
import pytest, uvloop

def set_off():
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    future.add_done_callback(lambda done: pytest.fail("in a callback"))
    future.set_result(None)

async def callback():
    set_off()
    await asyncio.sleep(0)

async def test_loop_of_pytest():
    await callback()

def test_loop_of_asyncio():
    asyncio.run(callback())

def test_loop_of_uvloop():
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(callback())

async def test_callback_of_the_last_turn():
    set_off()

async def test_task_that_nobody_awaits():
    async def fail():
        raise ZeroDivisionError
    task = asyncio.create_task(fail())
    await asyncio.sleep(0)
    del task
    gc.collect()

async def test_innocent():
    await asyncio.sleep(0)
"""


def test_what_a_loop_swallows_fails_the_test(tmp_path: Path) -> None:
    (tmp_path / "test_swallowed.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rA",
        "-p",
        "tests.support.loop_errors",
        "-p",
        "no:cacheprovider",
        "-o",
        "asyncio_mode=auto",
    ]

    finished = subprocess.run(
        [*command, "--rootdir", tmp_path, tmp_path], cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False
    )

    outcomes = [line.partition(" ") for line in finished.stdout.splitlines() if "test_swallowed.py::" in line]
    # Where CI is set, pytest's summary goes on with the reason.
    names = [(outcome, test.partition(" - ")[0].rpartition("::")[2]) for outcome, _, test in outcomes]
    by_outcome = {outcome: {name for kind, name in names if kind == outcome} for outcome in ("PASSED", "ERROR")}
    assert by_outcome["ERROR"] == {
        "test_loop_of_pytest",
        "test_loop_of_asyncio",
        "test_loop_of_uvloop",
        "test_callback_of_the_last_turn",
        "test_task_that_nobody_awaits",
    }
    assert by_outcome["PASSED"] - by_outcome["ERROR"] == {"test_innocent"}
