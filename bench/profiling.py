"""Where the broker's time goes under a row: a flame graph by py-spy, or cProfile's table where py-spy is missing or may not attach.

py-spy samples from outside (as root, or with ptrace allowed) and costs the broker almost nothing. cProfile runs inside and exaggerates the
cost of small functions.
"""

from __future__ import annotations

import io
import pstats
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bench.rows import ROWS
from bench.servers import BARNABAS, BarnabasServer, Product
from bench.session import Session

SAMPLES_PER_SECOND = 500
TOP_COUNT = 40
WARMUP_SCALE = 0.1
SAMPLER_TIMEOUT_S = 60.0
_LINE_NUMBER = re.compile(r":\d+\)$")


class ProfiledServer(BarnabasServer):
    """Barnabas under cProfile; the statistics are written when it has stopped."""

    @property
    def statistics_path(self) -> Path:
        return self.directory / "broker.prof"

    def command(self) -> list[str]:
        python, *arguments = super().command()
        return [python, "-m", "cProfile", "-o", str(self.statistics_path), *arguments]


def profile(row_name: str, *, scale: float, output_dir: Path, data_dir: Path | None) -> int:
    """Writes ROW.svg and ROW.txt (or ROW.txt alone from cProfile) to `output_dir` and prints the top of the text."""
    output_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="barnabas-profile-", dir=data_dir, ignore_cleanup_errors=True) as folder:
        sampler = _find_sampler()
        text = None
        if sampler:
            text = _by_sampling(sampler, row_name, scale, Path(folder), output_dir)
        if text is None:
            print("py-spy is missing (pip install py-spy) or may not attach (root, or kernel.yama.ptrace_scope=0): using cProfile")
            text = _by_cprofile(row_name, scale, Path(folder))
    text_path = output_dir / f"{row_name}.txt"
    text_path.write_text(text)
    print("\n".join(text.splitlines()[: TOP_COUNT + 3]))
    print(f"\nwritten: {text_path}")
    return 0


def _find_sampler() -> str | None:
    beside_python = Path(sys.executable).parent / "py-spy"
    return str(beside_python) if beside_python.exists() else shutil.which("py-spy")


def _by_sampling(sampler: str, row_name: str, scale: float, folder: Path, output_dir: Path) -> str | None:
    """Runs the row twice, once for each of py-spy's formats; None when it could not attach."""
    row = ROWS[row_name]
    session = Session(BARNABAS, folder / "sampled", scale)
    session.directory.mkdir()
    try:
        session.open()
        row.measure(Session(BARNABAS, session.directory, scale * WARMUP_SCALE, _server=session.server, _names=session._names))
        folded_path, graph_path = output_dir / f"{row_name}.folded", output_dir / f"{row_name}.svg"
        for path, form in ((folded_path, "raw"), (graph_path, "flamegraph")):
            options = [
                "--format",
                form,
                "--output",
                str(path),
                "--rate",
                str(SAMPLES_PER_SECOND),
                "--native",
                "--pid",
                str(session.server.pid),
            ]
            recorder = subprocess.Popen([sampler, "record", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            row.measure(session)
            recorder.send_signal(signal.SIGINT)
            recorder.wait(SAMPLER_TIMEOUT_S)
            if not path.exists():
                return None
    finally:
        session.close()
    print(f"written: {graph_path}")
    return _top_of(folded_path.read_text())


def _top_of(folded: str) -> str:
    """Two tables of the samples: by function, and by the innermost Python function, which takes what the C below it costs."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    python: Counter[str] = Counter()
    for line in folded.splitlines():
        stack, _, count_text = line.rpartition(" ")
        frames, count = [_LINE_NUMBER.sub(")", frame) for frame in stack.split(";")], int(count_text)
        own[frames[-1]] += count
        total.update(dict.fromkeys(frames, count))
        python[next((frame for frame in reversed(frames) if frame.endswith(".py)")), frames[-1])] += count
    samples = sum(own.values()) or 1

    def table(title: str, counts: Counter[str]) -> list[str]:
        lines = [f"{title:>8} {'total %':>8}  function"]
        return lines + [
            f"{100 * n / samples:8.1f} {100 * total[frame] / samples:8.1f}  {frame}" for frame, n in counts.most_common(TOP_COUNT)
        ]

    lines = [f"{samples} samples at {SAMPLES_PER_SECOND} per second, idle ones left out"]
    return "\n".join([*lines, *table("python %", python), "", *table("own %", own)]) + "\n"


def _by_cprofile(row_name: str, scale: float, folder: Path) -> str:
    product = Product(BARNABAS.name, BARNABAS.title, ProfiledServer)
    session = Session(product, folder / "profiled", scale)
    session.directory.mkdir()
    try:
        session.open()
        ROWS[row_name].measure(session)
        server = session.server
        assert isinstance(server, ProfiledServer)
        server.stop()
        out = io.StringIO()
        pstats.Stats(str(server.statistics_path), stream=out).sort_stats("tottime").print_stats(TOP_COUNT)
        return out.getvalue()
    finally:
        session.close()
