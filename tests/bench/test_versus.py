"""Two commits in turn: which figure decides, what a failed run takes with it, where each broker's code comes from."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import versus
from bench.campaign import Result
from bench.comparison import Verdict
from bench.rows import ROWS
from bench.servers import BARNABAS
from bench.usage import cpu_seconds
from bench.versus import commit_product, comparison, expected_seconds, table, without_clusters

HEAD = subprocess.run(["git", "rev-parse", "HEAD"], cwd=versus.CHECKOUT, capture_output=True, text=True, check=False).stdout.strip()


def result(row: str, key: str, values: list[float | None]) -> Result:
    return Result(ROWS[row], BARNABAS, runs=[None if value is None else {key: value} for value in values])


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ("lock-step", "cpu_us"),
        ("produce-1kb", "cpu_s_per_gb"),
        ("start", "port_open_s"),
        ("memory", "loaded_mb"),
        ("cluster-lock-step", "cpu_us"),
        ("cluster-failover", "next_ack_ms"),
        ("idle-connections", "kb_per_connection"),
        ("fair-flood", "beside_p99_us"),
        ("spark", "sink_cpu_s_per_million"),
    ],
)
def test_row_is_judged_by_its_cpu_or_else_by_its_main_figure(row: str, key: str) -> None:
    assert ROWS[row].judged.key == key


def test_every_row_has_a_figure_to_be_judged_by() -> None:
    for row in ROWS.values():
        assert row.main_key in ("", *(figure.key for figure in row.figures))
        assert row.judged in row.figures


def test_row_that_costs_a_tenth_more_has_lost() -> None:
    found = comparison(result("lock-step", "cpu_us", [60.0] * 10), result("lock-step", "cpu_us", [66.0] * 10), tolerance=0.03)

    assert found.verdict is Verdict.LOST
    assert found.interval is not None and found.interval.middle == pytest.approx(1.1)


def test_more_requests_a_second_are_no_loss() -> None:
    """A rate counts the other way round."""
    before, after = result("flushed-8", "requests_per_s", [1000.0] * 10), result("flushed-8", "requests_per_s", [1200.0] * 10)

    assert comparison(before, after, tolerance=0.03).verdict is Verdict.GAINED
    assert comparison(after, before, tolerance=0.03).verdict is Verdict.LOST


def test_failed_run_takes_its_pair_with_it_and_no_other() -> None:
    before = result("lock-step", "cpu_us", [float(number) for number in range(1, 13)])
    after = result("lock-step", "cpu_us", [1.0, None, 3.0, 0.0, *(float(number) for number in range(5, 13))])

    found = comparison(before, after, tolerance=0.03)

    assert found.before == found.after == (1.0, 3.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0)
    assert found.verdict is Verdict.SAME
    assert any("2 pairs were left out" in note for note in found.notes)


def test_table_has_a_line_for_each_row_also_for_one_that_never_ran() -> None:
    rows = [
        comparison(result("lock-step", "cpu_us", [60.0] * 10), result("lock-step", "cpu_us", [66.0] * 10), tolerance=0.03),
        comparison(result("start", "port_open_s", [None]), result("start", "port_open_s", [None]), tolerance=0.03),
    ]

    head, _, lost, unknown, *notes = table(rows, (BARNABAS, BARNABAS), tolerance=0.03).splitlines()

    assert "verdict at 3%" in head
    assert "1.100–1.100" in lost and lost.endswith("LOST")
    assert unknown.endswith("too few pairs") and "1 pairs were left out" in notes[0]


def test_duration_is_told_from_what_the_rows_took_before(tmp_path: Path) -> None:
    rows = [{"row": "lock-step", "product": "barnabas", "runs": {"cpu_us": [1.0, 1.0]}, "seconds": 22.0}]
    (tmp_path / "2026-01-01.json").write_text(json.dumps({"scale": 1.0, "rows": rows}))

    whole, quick = (expected_seconds([ROWS["lock-step"]], pairs=10, scale=scale, results_dir=tmp_path) for scale in (1.0, 0.1))

    assert whole == pytest.approx(10 * 2 * (11 + versus.SETTLE_S))
    assert quick == pytest.approx(10 * 2 * (2 + versus.SETTLE_S))


def test_rows_of_a_cluster_are_skipped_by_name_where_a_commit_forms_none() -> None:
    rows = [ROWS["lock-step"], ROWS["cluster-lock-step"]]
    old = replace(BARNABAS, title="1a2b3c4", has_cluster=False)

    assert without_clusters(rows, (BARNABAS, BARNABAS)) == (rows, [])
    assert without_clusters(rows, (old, BARNABAS)) == (rows[:1], ["  cluster-lock-step is skipped: 1a2b3c4 cannot form a cluster"])


@pytest.mark.skipif(not HEAD, reason="this is no git checkout")
@pytest.mark.parametrize("has_cluster", [True, False])
def test_commit_has_a_cluster_if_its_tests_start_one(has_cluster: bool, tmp_path: Path) -> None:
    added = versus._git("log", "--diff-filter=A", "--format=%H", "--", versus.CLUSTER_TESTED_BY)
    if not added:
        pytest.skip("a shallow clone does not know the commit")

    with commit_product("before", added if has_cluster else f"{added}~1", tmp_path) as product:
        assert product.has_cluster is has_cluster


@pytest.mark.skipif(not HEAD, reason="this is no git checkout")
def test_broker_of_a_commit_runs_that_commit_s_code_from_a_worktree_that_is_gone_afterwards(tmp_path: Path) -> None:
    with commit_product("before", "HEAD", tmp_path) as product:
        server = product.server(tmp_path / "server")
        where = "import broker.cli.main as module; print(module.__file__)"
        program = [*server.command()[: server.command().index("-m")], "-c", where]
        found = subprocess.run(program, env=server.environment(), cwd=versus.CHECKOUT, capture_output=True, text=True, check=True).stdout

        assert found.strip() == str(tmp_path / "worktree-before" / "broker" / "cli" / "main.py")
        assert HEAD.startswith(product.title)

    assert not (tmp_path / "worktree-before").exists()


def test_what_is_no_commit_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="git rev-parse"), commit_product("before", "no-such-commit", tmp_path):
        pass


def test_cpu_time_is_what_the_process_itself_counts() -> None:
    """In steps of 10 ms it would be up to 5 % less for a short run."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; print(time.process_time(), flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        counted = float(child.stdout.readline())
        assert counted <= cpu_seconds(child.pid) < counted + 0.1
    finally:
        child.communicate("\n")
