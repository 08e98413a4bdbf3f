"""Bars on a terminal, and nowhere else."""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import sys
from typing import Any

import pytest

from barnabas.cli import progress
from barnabas.cli.progress import Bar
from broker.cli import ready_bar as ready_bar_module
from broker.cli.ready_bar import CLEAR, ready_bar
from tests.barnabas.cli.conftest import Command


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal_at(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """In the place of stderr. Called in the test: pytest puts its own stderr there before."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    return terminal


@pytest.mark.parametrize(("after_s", "is_there"), [(0.0, True), (3_600.0, False)])
def test_bar_is_there_only_if_it_takes_long(monkeypatch: pytest.MonkeyPatch, after_s: float, is_there: bool) -> None:
    terminal = terminal_at(monkeypatch)
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", after_s)

    with Bar("copying") as bar:
        bar.show(1, 2)
        bar.show(2, 2)

    assert ("copying" in terminal.getvalue() and "2/2" in terminal.getvalue()) is is_there
    assert bool(terminal.getvalue()) is is_there


@pytest.mark.parametrize("server_process", ["barnabas"], indirect=True)
def test_deletion_that_takes_long_shows_one(command: Command, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command.done("topic", "create", topic_name)
    terminal = terminal_at(monkeypatch)
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0.0)
    wait = concurrent.futures.wait
    waits = iter([True])

    def late_at_first(futures: Any, timeout: float) -> Any:
        return (set(), set(futures)) if next(waits, False) else wait(futures, timeout)

    monkeypatch.setattr(concurrent.futures, "wait", late_at_first)

    command.done("topic", "delete", topic_name, "--yes")

    assert "waiting for answers" in terminal.getvalue() and "0/1" in terminal.getvalue()


def test_start_of_a_cluster_shows_how_many_nodes_are_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_at(monkeypatch)
    monkeypatch.setattr(ready_bar_module, "SHOWN_AFTER_S", 0.0)
    monkeypatch.setattr(ready_bar_module, "POLL_S", 0.0)

    async def start() -> None:
        ready = 0
        async with ready_bar(lambda: ready, 2):
            for number in range(3):
                ready = number
                while f"{number}/2 nodes" not in terminal.getvalue():
                    await asyncio.sleep(0)

    asyncio.run(start())

    assert terminal.getvalue().endswith(CLEAR) and "starting ##########.......... 1/2 nodes" in terminal.getvalue()


def test_no_line_is_written_without_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_bar_module, "SHOWN_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0.0)

    async def start() -> None:
        async with ready_bar(lambda: 0, 2):
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(start())
    with Bar("copying") as bar:
        bar.show(0, None)

    assert capsys.readouterr().err == ""
