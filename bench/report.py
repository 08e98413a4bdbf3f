"""The results of a sitting, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.campaign import Result
from bench.clients import librdkafka
from bench.row import Figure
from bench.servers import BARNABAS, KAFKA

RESULTS_DIR = Path(__file__).resolve().parent / "results"


def table(results: Sequence[Result]) -> str:
    """One line for each figure: median and range of each product, the ratio, the target and whether it is met."""
    is_compared = any(result.product is KAFKA for result in results)
    ours_by_row = {result.row.name: result for result in results if result.product is BARNABAS}
    theirs_by_row = {result.row.name: result for result in results if result.product is KAFKA}
    kafka_title = KAFKA.title if is_compared else "Kafka, recorded"
    lines = [("row", "figure", "unit", BARNABAS.title, kafka_title, "ratio", "target", "met")]
    for name in dict.fromkeys(result.row.name for result in results):
        ours, theirs = ours_by_row.get(name), theirs_by_row.get(name)
        row = (ours or theirs_by_row[name]).row
        for figure in row.figures:
            lines.append((name, figure.title, figure.unit, *_compared(figure, ours, theirs, is_compared)))
    return "\n".join([aligned(lines), *_notes(results)])


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """A table as text, its first line the head."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    text.insert(1, "-|-".join("-" * width for width in widths))
    return "\n".join(text)


def _compared(figure: Figure, ours: Result | None, theirs: Result | None, is_compared: bool) -> tuple[str, str, str, str, str]:
    """The cells from Barnabas's figure to `met`."""
    our_values = ours.values.get(figure.key, []) if ours else []
    kafka_values = theirs.values.get(figure.key, []) if theirs else []
    kafka = median(kafka_values) if kafka_values else None
    kafka_cell = with_range(kafka_values)
    if not is_compared and figure.recorded is not None:
        kafka, kafka_cell = figure.recorded, _number(figure.recorded)
    if not our_values:
        return "–", kafka_cell, "", figure.target, ""
    value = median(our_values)
    ratio = f"{value / kafka:.2f}" if kafka else ""
    is_met = figure.is_met(value, kafka)
    return with_range(our_values), kafka_cell, ratio, figure.target, "" if is_met is None else "yes" if is_met else "NO"


def with_range(values: Sequence[float]) -> str:
    """The median and, of several values, the least and the most."""
    if not values:
        return "–"
    if len(values) == 1:
        return _number(values[0])
    return f"{_number(median(values))} ({_number(min(values))}–{_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _notes(results: Sequence[Result]) -> list[str]:
    return [f"  {result.row.name}, {result.product.title}: {note}" for result in results for note in dict.fromkeys(result.notes)]


def as_json(results: Sequence[Result], *, scale: float, warmup: float) -> dict[str, Any]:
    """Everything that was measured, with what it was measured on."""
    return {
        **circumstances(scale=scale, warmup=warmup),
        "rows": [
            {
                "row": result.row.name,
                "product": result.product.name,
                "runs": result.values,
                "median": {key: median(values) for key, values in result.values.items()},
                "units": {figure.key: figure.unit for figure in result.row.figures},
                "notes": list(dict.fromkeys(result.notes)),
                "seconds": round(result.seconds, 1),
            }
            for result in results
        ],
    }


def circumstances(*, scale: float, warmup: float) -> dict[str, Any]:
    """When and on what something was measured."""
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "versions": versions(),
        "scale": scale,
        "warmup": warmup,
    }


def save(results: Sequence[Result], *, scale: float, warmup: float) -> Path:
    """Writes the JSON to bench/results and returns its path."""
    products = "-".join(dict.fromkeys(result.product.name for result in results))
    return write(as_json(results, scale=scale, warmup=warmup), products)


def write(content: dict[str, Any], name: str) -> Path:
    """Writes a file of bench/results that is called by the time and that name, and returns its path."""
    RESULTS_DIR.mkdir(exist_ok=True)
    path = RESULTS_DIR / f"{time.strftime('%Y-%m-%d-%H%M%S', time.gmtime())}-{name}.json"
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return path


def machine() -> dict[str, Any]:
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gb": round(memory_kib / 1e6, 1),
        "kernel": platform.release(),
        "load": os.getloadavg()[0],
    }


def versions() -> dict[str, str]:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False, cwd=RESULTS_DIR.parent)
    return {
        "barnabas": commit.stdout.strip() or "unknown",
        "kafka": KAFKA.title,
        "python": platform.python_version(),
        "librdkafka": librdkafka.VERSION,
        "java": _java_version(),
    }


def _java_version() -> str:
    try:
        shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    except FileNotFoundError:
        return "none"
    return shown.splitlines()[0] if shown else "none"
