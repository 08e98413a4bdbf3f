"""A short chaos campaign in every test run, and that its checks see what they are for; `make chaos MINUTES=…` runs long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.records import SimpleRecord, build_batch
from tests.faults import chaos
from tests.faults.nemesis import OPERATIONS
from tests.faults.replicas import batches, compare
from tests.faults.shapes import SHAPES
from tests.support.cluster import BARNABAS
from tests.support.kafka import missing_java
from tests.support.power import missing_power_cut
from tests.support.requirements import needs

SECONDS = 30.0
OPERATIONS_SECONDS = 20.0
POWER_SECONDS = 15.0
SEED = 5
SEEDS = {"combined": 5, "two": 7}
"""By which the first four of OPERATIONS in one shape and the first four in the other are all of them."""
PAUSE_S = 3.0
SENDS_PER_SECOND = 40  # with 100 these tests take 88 s of CPU, not 60
SETTINGS = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}


@pytest.mark.timeout(900)
def test_nothing_acked_is_lost_or_doubled_while_nodes_die_and_stand_still(tmp_path: Path) -> None:
    """RF 3, min.insync.replicas 2, acks=all, idempotent producers and a committing group, over faults of every kind."""
    windows = chaos.run(
        SECONDS,
        SEED,
        tmp_path,
        faults=chaos.possible_faults(),
        settings=SETTINGS,
        pause_s=PAUSE_S,
        sends_per_second=SENDS_PER_SECOND,
        window_s=SECONDS / 2,
        has_java=missing_java() is None,
    )

    assert [window.anomalies for window in windows] == [{}] * len(windows)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("shape", SEEDS)
def test_nothing_acked_is_lost_or_doubled_when_operators_change_what_a_broker_misses(tmp_path: Path, shape: str) -> None:
    """Topics are made anew, moved and trimmed and replicas lost while a broker is down; all brokers are silent at once."""
    windows = chaos.run(
        OPERATIONS_SECONDS,
        SEEDS[shape],
        tmp_path,
        faults=OPERATIONS,
        kinds=[BARNABAS] * len(SHAPES[shape]),
        roles=SHAPES[shape],
        settings=SETTINGS,
        pause_s=PAUSE_S,
        sends_per_second=SENDS_PER_SECOND,
        window_s=OPERATIONS_SECONDS / 2,
        has_java=False,
    )

    assert [window.anomalies for window in windows] == [{}] * len(windows)


@pytest.mark.timeout(900)
@needs(missing_power_cut())
def test_nothing_acked_is_lost_when_the_power_goes_or_a_disk_is_full(tmp_path: Path) -> None:
    """flush.messages=1: what is acked is on the disk of every replica in the ISR."""
    windows = chaos.run(POWER_SECONDS, SEED, tmp_path, faults=chaos.POWER_FAULTS, settings=SETTINGS, window_s=POWER_SECONDS, has_java=False)

    assert [window.anomalies for window in windows] == [{}] * len(windows)


def write_segment(directory: Path, base_offset: int, *values: str) -> None:
    """Each value is a batch of its own."""
    directory.mkdir(exist_ok=True)
    written = [build_batch([SimpleRecord(None, value.encode())], base_offset=base_offset + index) for index, value in enumerate(values)]
    (directory / f"{base_offset:020}.log").write_bytes(b"".join(written))


def test_replicas_that_are_cut_into_other_segments_are_equal(tmp_path: Path) -> None:
    write_segment(tmp_path / "1", 0, "a", "b", "c")
    write_segment(tmp_path / "2", 1, "b")
    write_segment(tmp_path / "2", 2, "c")

    assert compare({node_id: batches(tmp_path / str(node_id), 3) for node_id in (1, 2)}) == []


def test_a_replica_with_other_bytes_or_without_a_batch_differs(tmp_path: Path) -> None:
    write_segment(tmp_path / "1", 0, "a", "b", "c")
    write_segment(tmp_path / "2", 0, "a", "x", "c")
    write_segment(tmp_path / "3", 0, "a", "b")

    found = compare({node_id: batches(tmp_path / str(node_id), 3) for node_id in (1, 2, 3)})

    assert found == [
        "nodes 1 and 2 differ at 1 batches, first at offset 1: other bytes",
        "nodes 1 and 3 differ at 1 batches, first at offset 2: missing on node 3",
    ]


def test_what_is_beyond_the_high_watermark_may_differ(tmp_path: Path) -> None:
    write_segment(tmp_path / "1", 0, "a", "b")
    write_segment(tmp_path / "2", 0, "a")

    assert compare({node_id: batches(tmp_path / str(node_id), 1) for node_id in (1, 2)}) == []
