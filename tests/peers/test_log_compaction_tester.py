"""Apache Kafka's own LogCompactionTester against the cleaner: random keys, overwrites, deletions, and a sort of what is read back."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support.broker import BrokerProcess
from tests.support.kafka import TOOL_JVM_FLAGS, tester_class_path

SETTINGS = {
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.bytes": "1048576",
    "log.flush.offset.checkpoint.interval.ms": "500",
}
MESSAGES, DUPLICATES, DELETES_PERCENT = 100_000, 10, 10
SLEEP_S = 4  # between the last record that is sent and the first that is read
TIMEOUT_S = 180.0
REPORT = re.compile(r"(\d+) rows of data produced, (\d+) rows of data consumed.*Validated (\d+) values, (\d+) mismatches", re.DOTALL)


def test_kafkas_tester_finds_every_last_value(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", SETTINGS)
    class_path = tester_class_path()
    try:
        broker.start()
        command = [
            "java", *TOOL_JVM_FLAGS, f"-Djava.io.tmpdir={tmp_path}", "-cp", class_path, "org.apache.kafka.tools.LogCompactionTester",
            "--bootstrap-server", broker.bootstrap, "--messages", str(MESSAGES), "--duplicates", str(DUPLICATES),
            "--percent-deletes", str(DELETES_PERCENT), "--sleep", str(SLEEP_S),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    finally:
        broker.kill()

    told = done.stdout + done.stderr
    report = REPORT.search(told)
    assert report is not None and done.returncode == 0, told[-2000:]
    produced, consumed, validated, mismatches = map(int, report.groups())
    assert (produced, mismatches) == (MESSAGES, 0)
    assert consumed < 0.9 * MESSAGES, "nothing was compacted before it was read"
    assert validated > MESSAGES / DUPLICATES / 2
