"""How `make test` uses two cores: `python -m tests.support.lanes` runs the tests in lanes, one pytest for each, four lanes at a time.

A lane computes for about half of its time; the rest it waits, for clusters, for Java and for timeouts, while the others compute. A lane
is a folder's files, or one file that takes long by itself; the folders below tests/broker are one, since a pytest more takes over a
second. Long ones begin first, since one that began last would leave a core without work. What needs Spark is one lane, since its JVM takes
a gigabyte, and its connector is fetched into one cache.

A lane shares nothing with another but the machine. One that crashes or hangs is ended with all processes that it started and counts as a
failure; the others go on. What a lane printed is shown only if it failed.

A test that fails beside the others runs once more by itself, when all lanes have ended. The summary names it even if it passes then: that
is a bug too, of the product or of the test, but it should not stop a change that has nothing to do with it. Apache Kafka's CI does the same
for up to ten tests (maxTestRetries=1, maxTestRetryFailures=10). Nothing is repeated if more tests failed than SECOND_RUNS_MAX, and no test
that looks for lost or doubled records (ONE_FAILURE_TELLS): there a single failure is a finding.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.process import checkout
from tests.support.scratch import make_scratch

SPARK = "spark"
BELOW_BROKER = "tests/broker/*"
USERS_OF_SPARK = ("tests/pipeline/", "tests/clients/test_spark_", "tests/barnabas/test_documentation.py", "tests/clients/test_readme.py")
# Lanes in the order in which they begin; other folders come after them. A file that is named here is a lane of its own.
LONGEST = (
    "tests/clients",
    SPARK,
    "tests/peers",
    "tests/simulation",
    "tests/mixed",
    "tests/faults",
    "tests/broker",
    "tests/connect",
    BELOW_BROKER,
    "tests/flink",
    "tests/streams",
    "tests/barnabas",
    "tests/barnabas/cli",
    "tests/barnabas/console",
    "tests/mixed/test_takeover.py",
    "tests/storage",
    "tests/fuzz",
    "tests/bench",
    "tests/attack",
)
IN_MEMORY = (BELOW_BROKER, "tests/storage")
"""Lanes whose files are in memory if it has room: their tests run logs and brokers in their own process, and none of them needs a disk to
be slow or to be cut. On a disk they take half as long again, for syncing."""
LANE_MAX_S = 1_800
"""Longer than every lane takes on a slow machine; pytest-timeout ends a single test before."""
SECOND_RUNS_MAX = 3
ONE_FAILURE_TELLS = (
    "tests/faults/",
    "tests/simulation/",
    "tests/mixed/test_live_move.py",
    "tests/mixed/test_takeover.py",
    "tests/pipeline/test_sink_campaign.py",
)
"""Folders and files whose tests look for lost and doubled records under faults."""
SLOWEST_COUNT = 20
TAIL_LINES = 100
REASON_CHARS = 300
WARNING = re.compile(r"^  .*Warning: (seed .*)$", re.MULTILINE)
"""Of a simulated world whose seed does not show any more what it was kept for: the search for another takes minutes in each run."""
OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}  # JUnit's words and ours
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1")  # which names each test's file


@dataclass(frozen=True, slots=True)
class Lane:
    """Files that one pytest runs."""

    name: str
    files: tuple[str, ...]


@dataclass(slots=True)
class Result:
    """What became of a lane, or of all. Tests by outcome, skipped ones by reason; seconds by file."""

    failures: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    """What pytest says of a test that failed, shortened to a line."""
    passed_alone: list[str] = field(default_factory=list)
    """Tests that failed beside others and passed by themselves; they count as passed, and keep their reason."""
    counts: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    seconds: Counter[str] = field(default_factory=Counter)
    cpu_s: float = 0.0
    """Of pytest and of the processes that it waited for: those that it killed and left count nowhere."""
    output: str = ""
    warnings: list[str] = field(default_factory=list)

    def add(self, other: Result) -> None:
        self.failures += other.failures
        self.reasons |= other.reasons
        self.counts += other.counts
        self.seconds += other.seconds
        self.cpu_s += other.cpu_s
        self.warnings += other.warnings
        for reason, tests in other.skipped.items():
            self.skipped[reason] |= tests


def lanes_of(files: Iterable[str]) -> list[Lane]:
    """The lanes of these files, in the order in which they begin."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for file in files:
        by_name[_lane_name(file)].append(file)
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    return [Lane(name, tuple(sorted(by_name[name]))) for name in sorted(by_name, key=lambda name: (ranks.get(name, len(ranks)), name))]


def _lane_name(file: str) -> str:
    if file.startswith(USERS_OF_SPARK):
        return SPARK
    if file in LONGEST:
        return file
    folder = file.rpartition("/")[0]
    return BELOW_BROKER if folder.startswith("tests/broker/") else folder


class Run:
    """Owns the pytest processes and a directory for what they write; `close` ends and removes what is left."""

    def __init__(self, root: Path, *, lane_max_s: float = LANE_MAX_S) -> None:
        self._root = root
        self._lane_max_s = lane_max_s
        self._scratch = make_scratch("suite-", in_memory=False)
        self._in_memory = make_scratch("suite-", in_memory=True)
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(self, lane: Lane) -> Result:
        """Run one lane to its end. For a thread of its own."""
        folder = lane.name.replace("/", "-").replace("*", "each")  # Prometheus takes a * in a path for a pattern
        directory = (self._in_memory if lane.name in IN_MEMORY else self._scratch) / folder
        directory.mkdir()
        report, log = directory / "report.xml", directory / "output"
        options = [f"--basetemp={directory / 'files'}", f"--junitxml={report}"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *PYTEST, *options, *lane.files],
                cwd=self._root, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self._running.add(process)
        limit = threading.Timer(self._lane_max_s, _end, [process])
        limit.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        ended = f"ended with status {process.returncode}" if limit.is_alive() else f"did not end within {self._lane_max_s} s"
        limit.cancel()
        _end(process)
        self._running.discard(process)
        result = _read_report(report)
        result.cpu_s = usage.ru_utime + usage.ru_stime
        result.output = log.read_text(errors="replace")
        result.warnings = WARNING.findall(result.output)
        if not result.failures and (process.returncode or not result.counts):
            result.failures.append(f"{lane.name}: pytest {ended}")
            result.counts["failed"] += 1
        shutil.rmtree(directory, ignore_errors=True)
        return result

    def close(self) -> None:
        for process in tuple(self._running):
            _end(process)
        for directory in (self._scratch, self._in_memory):
            shutil.rmtree(directory, ignore_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends it, and the servers that it left if it crashed. Whoever waits for it learns it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _read_report(path: Path) -> Result:
    """What the report says; an empty result for a pytest that did not live to write it."""
    result = Result()
    if not path.exists():
        return result
    for case in ElementTree.parse(path).iter("testcase"):
        file = case.get("file", "")
        classes = case.get("classname", "").removeprefix(file.removesuffix(".py").replace("/", "."))  # "" or ".TestThese"
        test = f"{file}{classes.replace('.', '::')}::{case.get('name')}"
        problem = next((child for child in case if child.tag in OUTCOMES), None)
        outcome = "passed" if problem is None else OUTCOMES[problem.tag]
        result.counts[outcome] += 1
        result.seconds[file] += float(case.get("time", "0"))
        if outcome == "failed":
            result.failures.append(test)
            result.reasons[test] = " ".join(problem.get("message", "").split())[:REASON_CHARS]
        elif problem is not None:
            result.skipped[problem.get("message", "")].add(test)
    return result


def run_lanes(root: Path, lanes: Sequence[Lane], workers: int, *, lane_max_s: float = LANE_MAX_S) -> Result:
    """Run them all, `workers` at a time, and say how each went."""
    total, run = Result(), Run(root, lane_max_s=lane_max_s)
    threads = ThreadPoolExecutor(workers)
    try:
        began_s = time.monotonic()
        running = {threads.submit(run.run, lane): lane for lane in lanes}
        for future in as_completed(running):
            result = future.result()
            total.add(result)
            told = f"{_counted(result)} in {result.seconds.total():.0f} s, {result.cpu_s:.0f} s of CPU"
            _say(f"[{time.monotonic() - began_s:5.0f} s] {running[future].name}: {told}")
            if result.failures:
                _say(_interesting(result.output))
        if len(total.failures) <= SECOND_RUNS_MAX:
            _repeat(run, total)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        run.close()
    return total


def _repeat(run: Run, total: Result) -> None:
    """Each test that failed by itself, one after another; a lane that died is no test."""
    for number, test in enumerate(tuple(total.failures)):
        if test not in total.reasons or test.startswith(ONE_FAILURE_TELLS):
            continue
        _say(f"once more, by itself: {test}")
        result = run.run(Lane(f"once-more-{number}", (test,)))
        total.cpu_s += result.cpu_s
        if result.failures or not result.counts["passed"]:
            _say(_interesting(result.output))
            continue
        total.failures.remove(test)
        total.passed_alone.append(test)
        total.counts["failed"] -= 1
        total.counts["passed"] += 1


def _interesting(output: str) -> str:
    """What pytest printed from its first failure on, or its last lines if it did not come to tell."""
    found = re.search(r"^=+ (FAILURES|ERRORS) =+$", output, re.MULTILINE)
    return output[found.start() :] if found else "\n".join(output.splitlines()[-TAIL_LINES:])


def summary(total: Result) -> str:
    lines = [f"{total.cpu_s:.0f} s of CPU; the {SLOWEST_COUNT} slowest files:"]
    lines += [f"    {seconds:6.1f} s  {file}" for file, seconds in total.seconds.most_common(SLOWEST_COUNT)]
    lines += ["skipped and why:"] if total.skipped else ["nothing was skipped"]
    for reason, tests in sorted(total.skipped.items()):
        lines += [f"{reason}:", *(f"    {test}" for test in sorted(tests))]
    lines += [f"warning: {warning}" for warning in total.warnings]
    for heading, tests in (("failed beside others and passed alone:", total.passed_alone), ("failed:", total.failures)):
        lines += [heading] if tests else []
        for test in tests:
            lines += [f"    {test}", *([f"        {total.reasons[test]}"] if test in total.reasons else [])]
    return "\n".join([*lines, _counted(total)])


def _counted(result: Result) -> str:
    return ", ".join(f"{result.counts[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4, help="how many lanes run at a time")
    parser.add_argument("lanes", nargs="*", help="names of lanes; all if none are given")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # not without ending the lanes
    files = (str(path.relative_to(checkout())) for path in (checkout() / "tests").rglob("test_*.py"))
    lanes = [lane for lane in lanes_of(files) if not arguments.lanes or lane.name in arguments.lanes]
    total = run_lanes(checkout(), lanes, arguments.workers)
    _say(summary(total))
    return 1 if total.failures or not total.counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
