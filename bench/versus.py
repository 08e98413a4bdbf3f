"""Two commits in turn: `python -m bench versus BEFORE AFTER`.

Each commit's broker runs from a worktree of its own, under the load of this checkout. Each row is run A B, B A, A B, …, so that a drift
over the sitting affects both alike.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import report
from bench.campaign import SETTLE_S, Result, measure
from bench.comparison import CONFIDENCE, Interval, Verdict, bootstrap_interval, judge, pair_ratios
from bench.row import Figure, Row
from bench.servers import BarnabasServer, Product

CHECKOUT = Path(__file__).resolve().parents[1]
THIS_CHECKOUT = "."
GIT_TIMEOUT_S = 120
CLUSTER_TESTED_BY = "tests/support/cluster.py"  # a commit without it has no working cluster of processes
# For the expected duration: seconds of a row without saved figures, and around each run.
UNKNOWN_ROW_S = 20.0
FIXED_S_PER_RUN = 1.0
REHEARSAL_S_PER_GB = 1.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one row: the judged figure's values, pair by pair, and the verdict."""

    row: Row
    figure: Figure
    before: tuple[float, ...]
    after: tuple[float, ...]
    interval: Interval | None
    verdict: Verdict
    notes: tuple[str, ...] = ()


@contextlib.contextmanager
def commit_product(name: str, commit: str, directory: Path) -> Iterator[Product]:
    """The broker of a commit, in a temporary worktree. `.` is this checkout as it is. Raises SystemExit if there is no such commit."""
    if commit == THIS_CHECKOUT:
        yield _product(name, CHECKOUT, "this checkout")
        return
    short = _git("rev-parse", "--verify", "--short", f"{commit}^{{commit}}")
    worktree = directory / f"worktree-{name}"
    _git("worktree", "add", "--quiet", "--detach", str(worktree), short)
    try:
        yield _product(name, worktree, short)
    finally:
        _git("worktree", "remove", "--force", str(worktree))


def without_clusters(rows: Sequence[Row], products: Sequence[Product]) -> tuple[Sequence[Row], list[str]]:
    """The rows that all products can run, and a line for each skipped row: a row of a cluster, if a commit cannot form one."""
    alone = [product.title for product in products if not product.has_cluster]
    if not alone:
        return rows, []
    skipped = [f"  {row.name} is skipped: {' and '.join(alone)} cannot form a cluster" for row in rows if row.is_cluster]
    return [row for row in rows if not row.is_cluster], skipped


def compare(
    rows: Sequence[Row],
    products: tuple[Product, Product],
    *,
    pairs: int,
    scale: float,
    warmup: float,
    tolerance: float,
    data_dir: Path | None,
) -> list[Comparison]:
    """Measures every row `pairs` times for both and judges each."""
    results = measure(rows, products, runs=pairs, scale=scale, warmup=warmup, data_dir=data_dir, is_exact=True)
    by_row = {row.name: [result for result in results if result.row is row] for row in rows}
    return [comparison(*by_row[row.name], tolerance=tolerance) for row in rows]


def comparison(before: Result, after: Result, *, tolerance: float) -> Comparison:
    """Judges a row by its CPU figure if it has one, else by its main figure. A pair with a failed run is dropped."""
    row = before.row
    figure = row.judged
    pairs = [
        (first[figure.key], second[figure.key])
        for first, second in zip(before.runs, after.runs, strict=True)
        if first is not None and second is not None and first.get(figure.key, 0) > 0 and second.get(figure.key, 0) > 0
    ]
    left_out = len(before.runs) - len(pairs)
    notes = [f"{result.product.title}: {note}" for result in (before, after) for note in dict.fromkeys(result.notes)]
    notes += [f"{left_out} pairs were left out: a run failed or measured nothing"] if left_out else []
    firsts, seconds = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
    interval = bootstrap_interval(pair_ratios(firsts, seconds, lower_is_better=figure.lower_is_better)) if pairs else None
    verdict = judge(interval, len(pairs), tolerance=tolerance) if interval else Verdict.TOO_FEW
    return Comparison(row, figure, firsts, seconds, interval, verdict, tuple(notes))


def expected_seconds(rows: Sequence[Row], *, pairs: int, scale: float, results_dir: Path = report.RESULTS_DIR) -> float:
    """About how long a comparison takes, by the rows' durations in saved sittings."""
    known = _seconds_per_run(results_dir)
    per_pair = 0.0
    for row in rows:
        scaled = max(0.0, known.get(row.name, UNKNOWN_ROW_S) - FIXED_S_PER_RUN) * min(1.0, scale)
        per_pair += 2 * (FIXED_S_PER_RUN + scaled + SETTLE_S + row.writes_gb * scale * REHEARSAL_S_PER_GB)
    return per_pair * pairs


def table(comparisons: Sequence[Comparison], products: tuple[Product, Product], *, tolerance: float) -> str:
    """One line for each row: both medians, how many times worse the second is with the interval, the verdict."""
    before, after = (product.title for product in products)
    lines = [("row", "figure", "unit", before, after, "times worse", f"{CONFIDENCE:.0%} interval", "pairs", f"verdict at {tolerance:.0%}")]
    for each in comparisons:
        cells = (
            ("–", "–") if each.interval is None else (f"{each.interval.middle:.3f}", f"{each.interval.low:.3f}–{each.interval.high:.3f}")
        )
        figure = (each.row.name, each.figure.title, each.figure.unit)
        values = (report.with_range(each.before), report.with_range(each.after))
        lines.append((*figure, *values, *cells, str(len(each.before)), each.verdict.value))
    notes = [f"  {each.row.name}, {note}" for each in comparisons for note in each.notes]
    return "\n".join([report.aligned(lines), *notes])


def save(comparisons: Sequence[Comparison], products: tuple[Product, Product], *, scale: float, warmup: float, tolerance: float) -> Path:
    """Writes the JSON to bench/results and returns its path."""
    content: dict[str, Any] = {
        **report.circumstances(scale=scale, warmup=warmup),
        "before": products[0].title,
        "after": products[1].title,
        "tolerance": tolerance,
        "confidence": CONFIDENCE,
        "comparisons": [
            {
                "row": each.row.name,
                "figure": each.figure.key,
                "unit": each.figure.unit,
                "before": each.before,
                "after": each.after,
                "times_worse": None if each.interval is None else asdict(each.interval),
                "verdict": each.verdict.name,
                "notes": each.notes,
            }
            for each in comparisons
        ],
    }
    return report.write(content, f"versus-{_file_word(products[0].title)}-{_file_word(products[1].title)}")


def _product(name: str, checkout: Path, title: str) -> Product:
    class CommitServer(BarnabasServer):
        """The broker of that checkout, under this interpreter; -P keeps this one's folders off the path."""

        def command(self) -> list[str]:
            program, *rest = super().command()
            return [program, "-P", *rest]

        def environment(self) -> dict[str, str]:
            return {**super().environment(), "PYTHONPATH": str(checkout)}

    return Product(name, title, CommitServer, has_cluster=(checkout / CLUSTER_TESTED_BY).exists())


def _seconds_per_run(results_dir: Path) -> Mapping[str, float]:
    """The seconds of one run of each row at full scale, from the newest saved sitting that has the row."""
    seconds: dict[str, float] = {}
    for path in sorted(results_dir.glob("*.json")):
        content = json.loads(path.read_text())
        for row in content.get("rows", []):
            runs = max((len(values) for values in row["runs"].values()), default=0)
            if runs and content["scale"] == 1.0 and row["product"] == "barnabas":
                seconds[row["row"]] = row["seconds"] / runs
    return seconds


def _file_word(title: str) -> str:
    return title.replace(" ", "-")


def _git(*arguments: str) -> str:
    outcome = subprocess.run(["git", *arguments], cwd=CHECKOUT, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False)
    if outcome.returncode:
        raise SystemExit(f"git {arguments[0]}: {outcome.stderr.strip() or outcome.stdout.strip()}")
    return outcome.stdout.strip()


def run(
    rows: Sequence[Row],
    commits: tuple[str, str],
    *,
    pairs: int,
    scale: float,
    warmup: float,
    tolerance: float,
    data_dir: Path | None,
    is_saved: bool,
) -> int:
    """Prints the expected duration, measures, prints the table. Returns 1 if a row lost or could not be measured, else 0."""
    with tempfile.TemporaryDirectory(prefix="barnabas-versus-") as folder, contextlib.ExitStack() as stack:
        before, after = (
            stack.enter_context(commit_product(name, commit, Path(folder)))
            for name, commit in zip(("before", "after"), commits, strict=True)
        )
        products = (before, after)
        rows, skipped = without_clusters(rows, products)
        for line in skipped:
            print(line)
        duration_s = expected_seconds(rows, pairs=pairs, scale=scale)
        spoken = f"{duration_s / 60:.0f} min" if duration_s >= 120 else f"{duration_s:.0f} s"
        print(f"{time.strftime('%H:%M:%S')} {len(rows)} rows × {pairs} pairs: about {spoken} after the warm-up", flush=True)
        comparisons = compare(rows, products, pairs=pairs, scale=scale, warmup=warmup, tolerance=tolerance, data_dir=data_dir)
    print("\n".join(["", table(comparisons, products, tolerance=tolerance), *skipped]))
    if is_saved:
        print(f"\nsaved: {save(comparisons, products, scale=scale, warmup=warmup, tolerance=tolerance)}")
    return 1 if any(each.verdict is Verdict.LOST or not each.before for each in comparisons) else 0
