"""A pytest plugin: `pytest --in-process` runs the tests that start no other process, for `make check`.

A file is left out, and not even imported, if it imports what starts processes, by itself or by a module of the tests or of bench/ that it
imports. A test that takes long is left out by the marker `long`, whose argument says why it is worth its time elsewhere.
A test that starts a process all the same fails: an audit hook sees every way to start one.
"""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Generator, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.sources import ROOT

STARTERS = frozenset({"subprocess", "multiprocessing", "pyspark", "barnabas"})
"""What starts processes: `barnabas` is what users import, and starts brokers; pyspark starts a JVM."""
IMPORT = re.compile(r"^(?:import ([\w.]+)|from ([\w.]+) import (\([^)]*\)|.*))", re.MULTILINE)
"""At the beginning of a line, as formatted sources have it; parsing them all would take seconds."""
FOLLOWED = ("tests", "bench")
EVENTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"})
"""Audit events of Python that tell of a new process, whatever module starts it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--in-process", action="store_true", help="only tests that start no other process and take little time")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_left_out = config.getoption("--in-process") and collection_path.name.startswith("test_") and starts_processes(collection_path)
    return True if is_left_out else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--in-process"):
        long = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in set(long)]


def pytest_collection_finish(session: pytest.Session) -> None:
    """The collector looks at the tests' objects alone: looking at pytest's items and modules too took a quarter of the time."""
    gc.collect()
    gc.freeze()


class Guard:
    """Refuses new processes while a test runs: pytest and its plugins may start some."""

    def __init__(self) -> None:
        self._is_on = False
        sys.addaudithook(self._hear)  # for the rest of the process: hooks cannot be removed

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        self._is_on = True
        try:
            return (yield)
        finally:
            self._is_on = False

    def _hear(self, event: str, arguments: Iterable[Any]) -> None:
        if self._is_on:
            refuse_process(event, arguments)


def guard_if_told(config: pytest.Config) -> None:
    if config.getoption("--in-process"):
        config.pluginmanager.register(Guard())


def refuse_process(event: str, arguments: Iterable[Any]) -> None:
    """AssertionError for an audit event that tells of a new process."""
    if event in EVENTS:
        raise AssertionError(f"a process is started, though nothing that the test's file imports does such things: {event} {arguments}")


def starts_processes(path: Path) -> bool:
    """Whether a file of the tests imports what starts processes, or a module that does."""
    seen: set[str] = set()
    pending = set(_imports_of(path))
    while pending:
        name = pending.pop()
        if name.partition(".")[0] in STARTERS:
            return True
        seen.add(name)
        pending |= _imports_of_module(name) - seen
    return False


@cache
def _imports_of_module(name: str) -> frozenset[str]:
    """By the name, since paths are slow to make: the same modules are met from most files."""
    return _imports_of(ROOT / (name.replace(".", "/") + ".py")) if name.partition(".")[0] in FOLLOWED else frozenset()


def _imports_of(path: Path) -> frozenset[str]:
    """What the file imports, names of modules or of what is in them. Nothing for a file that is none of the tests or bench/."""
    if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in FOLLOWED or not path.is_file():
        return frozenset()
    imported: set[str] = set()
    for module, source, names in IMPORT.findall(path.read_text(encoding="utf-8")):
        imported |= {module} if module else {source} | {f"{source}.{name}" for name in re.findall(r"[\w.]+", names)}
    return frozenset(imported)
