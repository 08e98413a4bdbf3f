"""What lies in log.dirs is for the broker's user alone: records, and the metadata log, which has the credentials of users."""

from __future__ import annotations

import stat
from pathlib import Path

from confluent_kafka import Producer

from tests.support.broker import BrokerProcess


def test_a_directory_that_is_made_and_its_files_are_private(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "broker", {"log.dirs": str(tmp_path / "above" / "made"), "metadata.max.idle.interval.ms": "0"})
    broker.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("t", b"v")
    assert producer.flush(30) == 0
    broker.stop()

    assert _mode(tmp_path / "above" / "made") == 0o700
    files = [path for path in (tmp_path / "above" / "made").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".log", ".index", ".properties", ".metadata"}
    assert {path.name for path in files if _mode(path) != 0o600} == set()


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    existing = tmp_path / "existing"
    existing.mkdir()
    existing.chmod(0o755)
    broker = BrokerProcess(tmp_path / "broker", {"log.dirs": str(existing)})
    broker.start()
    broker.stop()

    assert _mode(existing) == 0o755
    assert {path.name for path in existing.rglob("*") if path.is_file() and _mode(path) != 0o600} == set()


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
