"""Says at the end of a run what was skipped and why, and how to get what is missing."""

from __future__ import annotations

import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.support import spark_classes
from tests.support.in_process import guard_if_told
from tests.support.in_process import pytest_addoption as pytest_addoption
from tests.support.in_process import pytest_collection_finish as pytest_collection_finish
from tests.support.in_process import pytest_collection_modifyitems as pytest_collection_modifyitems
from tests.support.in_process import pytest_ignore_collect as pytest_ignore_collect
from tests.support.installed import environment, wheel  # noqa: F401
from tests.support.leaked_files import closing_segment_files
from tests.support.loop_errors import _no_unhandled_error_of_a_loop as _no_unhandled_error_of_a_loop
from tests.support.process import cache_dir
from tests.support.requirements import pytest_runtest_setup as pytest_runtest_setup

if sys.dont_write_bytecode:
    # Where the checkout is to be kept clean, what is compiled is kept elsewhere: rewriting all assertions anew takes 20 s.
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(cache_dir() / "pycache")

INSTALL_JAVA = "sudo apt-get install -y openjdk-17-jdk-headless maven"


def pytest_configure(config: pytest.Config) -> None:
    # Settings of the caller's shell are configuration to a broker: no test may depend on them.
    for key in [key for key in os.environ if key.startswith("KAFKA_")]:
        del os.environ[key]
    spark_classes.set_options(os.environ)
    guard_if_told(config)


@pytest.fixture(autouse=True, scope="session")
def _spark_classes(request: pytest.FixtureRequest) -> None:
    if any(item.get_closest_marker("spark") for item in request.session.items):
        spark_classes.make_archive()
        spark_classes.set_options(os.environ)


@pytest.fixture(autouse=True, scope="module")
def _close_segments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with closing_segment_files(tmp_path_factory.getbasetemp()):
        yield


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
