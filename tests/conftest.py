"""Says at the end of a run what was skipped and why, and how to get what is missing."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from storage.segment import LogSegment

INSTALL_JAVA = "sudo apt-get install -y openjdk-17-jdk-headless maven"


def pytest_configure(config: pytest.Config) -> None:
    # Settings of the caller's shell are configuration to a broker: no test may depend on them.
    for key in [key for key in os.environ if key.startswith("KAFKA_")]:
        del os.environ[key]


@pytest.fixture(autouse=True)
def _close_segments(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Frees what a test's logs still hold: one that stands for a killed process is never closed. Thousands of such descriptors later
    a test fails that has nothing to do with them: py4j waits by select(), which takes none above 1,023."""
    opened: list[LogSegment] = []
    make = LogSegment.__init__

    def note(self: LogSegment, *arguments: Any, **named: Any) -> None:
        make(self, *arguments, **named)
        opened.append(self)

    monkeypatch.setattr(LogSegment, "__init__", note)
    yield
    for segment in opened:
        segment.abandon()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    tests_by_reason: dict[str, list[str]] = defaultdict(list)
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        tests_by_reason[reason.removeprefix("Skipped: ")].append(report.nodeid)
    terminalreporter.section("skipped and why")
    if not tests_by_reason:
        terminalreporter.write_line("nothing was skipped")
    for reason, tests in sorted(tests_by_reason.items()):
        terminalreporter.write_line(f"{reason}:")
        for test in sorted(set(tests)):
            terminalreporter.write_line(f"    {test}")
    if not shutil.which("java") or not shutil.which("mvn"):
        terminalreporter.write_line(f"Java or Maven is missing. To run the tests that need them: {INSTALL_JAVA}")
