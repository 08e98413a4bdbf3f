"""A short campaign of transactional clients in every test run, and that its check sees what it is for; `python -m tests.faults.transactions
--minutes …` runs long ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults import transactions
from tests.faults.load import Operation
from tests.faults.transactional_campaign import KILL_CLIENT, KILL_COORDINATOR, KILL_GROUP_COORDINATOR, Log, judge, keys_of
from tests.faults.transactional_load import INPUT, PYTHON_PIPELINES, Pipeline
from tests.support.cluster import BARNABAS

SECONDS = 6.0
SEED = 3
SETTINGS = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}
KILLS = (KILL_CLIENT, KILL_CLIENT, KILL_COORDINATOR, KILL_GROUP_COORDINATOR, "kill-leader", "kill-all")
PIPELINE = Pipeline("p", "confluent-kafka", INPUT, copiers=1)
OUTPUT = PIPELINE.output


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("nodes_count", "faults"), [(3, KILLS), (1, (KILL_CLIENT, KILL_CLIENT, "kill-all"))], ids=["three", "one"])
def test_input_equals_output_once_while_nodes_and_clients_are_killed(tmp_path: Path, nodes_count: int, faults: tuple[str, ...]) -> None:
    windows = transactions.run(
        SECONDS, SEED, tmp_path, kinds=[BARNABAS] * nodes_count, faults=faults, settings=SETTINGS, window_s=SECONDS, has_java=False
    )

    assert [window.anomalies for window in windows] == [{}] * len(windows)
    assert windows[0].outcomes["ok"] >= len(PYTHON_PIPELINES)


def transaction(outcome: str, reads: Log, *sends: tuple[str, int, str]) -> Operation:
    return {
        "p": "c",
        "t": outcome,
        "f": "txn",
        "m": [("poll", reads), *(("send", *send) for send in sends)],
        "rebalanced": {*reads},
        "inv": 1,
        "ret": 2,
    }


def written(*values: str) -> Operation:
    return {
        "p": "s",
        "t": "ok",
        "f": "txn",
        "m": [("send", "in-0", offset, value) for offset, value in enumerate(values)],
        "inv": 0,
        "ret": 0,
    }


def judged(log: Log, *operations: Operation) -> dict[str, Any]:
    everything = {key: log.get(key, []) for key in keys_of(INPUT, OUTPUT)}
    return judge([PIPELINE], operations, [], everything)


def test_a_copy_is_no_anomaly() -> None:
    log: Log = {"in-0": [(0, "a"), (1, "b")], "out-p-0": [(0, "a|1"), (2, "b|2")]}
    first = transaction("ok", {"in-0": [(0, "a")]}, ("out-p-0", 0, "a|1"))
    second = transaction("info", {"in-0": [(1, "b")]}, ("out-p-0", None, "b|2"))

    assert judged(log, written("a", "b"), first, second) == {}


@pytest.mark.parametrize(
    ("copied", "found"),
    [
        ([(0, "a|1")], "missing 1: ['b'], too many 0: []"),
        ([(0, "a|1"), (1, "b|1"), (3, "b|2")], "missing 0: [], too many 1: ['b']"),
        ([(0, "b|1"), (1, "a|1")], "another order from record 0 on: a and b"),
    ],
    ids=["lost", "doubled", "turned round"],
)
def test_a_record_that_is_lost_or_doubled_or_elsewhere_is_seen(copied: list[tuple[int, str]], found: str) -> None:
    sends = [transaction("ok", {}, ("out-p-0", offset, value)) for offset, value in copied]

    anomalies = judged({"in-0": [(0, "a"), (1, "b")], "out-p-0": copied}, written("a", "b"), *sends)

    assert anomalies["out-p-0 is no copy of in-0"] == [found]


def test_what_was_aborted_and_a_transaction_of_which_a_part_is_there_are_seen() -> None:
    log: Log = {"in-0": [(0, "a"), (1, "b")], "out-p-0": [(0, "a|1"), (1, "b|2")]}
    aborted = transaction("fail", {}, ("out-p-0", None, "a|1"))
    torn = transaction("info", {}, ("out-p-0", None, "b|2"), ("out-p-1", None, "x|2"))

    assert {"aborted-read(G1a)", "torn-txn"} <= set(judged(log, written("a", "b"), aborted, torn))


def test_a_transaction_that_reads_its_own_records_is_seen() -> None:
    own = transaction("ok", {"out-p-0": [(0, "a|1")]}, ("out-p-0", 0, "a|1"))

    assert "precommitted-read" in judged({"in-0": [(0, "a")], "out-p-0": [(0, "a|1")]}, written("a"), own)
