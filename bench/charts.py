"""Draws Barnabas beside Apache Kafka for the first page: `python -m bench.charts` writes docs/images/beside-kafka.svg.

What is drawn is the newest sitting in bench/results that has a row of both products and was no trial: medians as bars, the least and the
most as a line over them. A panel's scale begins at 0. The file has its own background and follows the reader's choice of light or dark, so
that it can be read on any page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

from bench.report import RESULTS_DIR

PATH = Path(__file__).resolve().parents[1] / "docs" / "images" / "beside-kafka.svg"
MEMORY_GB = 8.0  # that the row memory produces and consumes at scale 1
SCALE_MIN = 0.25  # of the bench's volumes; a sitting below it was a trial
PRODUCTS = {"barnabas": "Barnabas", "kafka": "Apache Kafka"}

# Pixels.
WIDTH, PANEL_HEIGHT, MARGIN, COLUMNS = 760, 104, 20, 2
BAR_HEIGHT, BAR_STEP, LABELS_WIDTH, FIGURES_WIDTH = 18, 26, 98, 90

# Okabe and Ito's blue and orange, which colour-blind readers tell apart; a label stands beside each bar anyway.
STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 } .small { font-size: 11px; fill: #59636e }
.ground { fill: #ffffff; stroke: #d1d9e0 } .barnabas { fill: #0072b2 } .kafka { fill: #d98e04 } .range { stroke: #1f2328 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 }
.ground { fill: #0d1117; stroke: #3d444d } .barnabas { fill: #56b4e9 } .kafka { fill: #e69f00 } .range { stroke: #e6edf3 }
}"""


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure of one row of the bench. `scale` makes `unit` of what was measured; {gb:g} in a title are the gigabytes of its sitting."""

    title: str
    row: str
    figure: str
    unit: str
    more_is_better: bool
    scale: float = 1.0


PANELS = (
    Panel("Produce, records of 1 KB", "produce-1kb", "mb_per_s", "MB/s", True),
    Panel("Consume, records of 1 KB", "consume-1kb", "mb_per_s", "MB/s", True),
    Panel("The broker's CPU, producing", "produce-1kb", "cpu_s_per_gb", "s/GB", False),
    Panel("Memory after {gb:g} GB in and out", "memory", "loaded_mb", "MB", False),
    Panel("Start, to the first acknowledged record", "start", "first_ack_s", "s", False),
    Panel("Three brokers: a leader killed, to the next ack", "cluster-failover", "next_ack_ms", "s", False, 0.001),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """The runs of one row of both products in one sitting: values by product and figure."""

    sitting: dict[str, Any]
    values: dict[str, dict[str, list[float]]]

    def title_of(self, panel: Panel) -> str:
        return panel.title.format(gb=MEMORY_GB * self.sitting["scale"])


def sittings() -> list[dict[str, Any]]:
    """Those of bench/results that were no trials, oldest first."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS_DIR.glob("*.json")]
    return sorted((sitting for sitting in found if sitting["scale"] >= SCALE_MIN), key=lambda sitting: sitting["date"])


def newest(row: str, known: Iterable[dict[str, Any]]) -> Measured:
    """`known` is in the order of time. Raises LookupError if no sitting has the row of both products."""
    best = None
    for sitting in known:
        values = {each["product"]: each["runs"] for each in sitting["rows"] if each["row"] == row}
        if values.keys() >= PRODUCTS.keys():
            best = Measured(sitting, values)
    if best is None:
        raise LookupError(f"no sitting has {row} of both products")
    return best


def draw(known: list[dict[str, Any]]) -> str:
    """The whole picture as SVG."""
    measured = {panel.row: newest(panel.row, known) for panel in PANELS}
    rows = -(-len(PANELS) // COLUMNS)
    height = MARGIN + rows * PANEL_HEIGHT + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
        f"<title>Barnabas beside Apache Kafka</title><desc>{escape(describe(known))}</desc><style>{STYLE}</style>",
        f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
    ]
    for index, panel in enumerate(PANELS):
        left = MARGIN + index % COLUMNS * (WIDTH // COLUMNS)
        parts += _panel(panel, measured[panel.row], left, MARGIN + index // COLUMNS * PANEL_HEIGHT)
    parts.append(f'<text class="small" x="{MARGIN}" y="{height - 16}">{escape(_circumstances(measured.values()))}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def describe(known: list[dict[str, Any]]) -> str:
    """The medians in words, for who does not see the picture."""
    told = []
    for panel in PANELS:
        found = newest(panel.row, known)
        figures = " and ".join(f"{_number(median(found.values[key][panel.figure]) * panel.scale)} {panel.unit}" for key in PRODUCTS)
        told.append(f"{found.title_of(panel)}: {figures}.")
    return " ".join(told)


def _panel(panel: Panel, measured: Measured, left: int, top: int) -> list[str]:
    runs = {product: [value * panel.scale for value in measured.values[product][panel.figure]] for product in PRODUCTS}
    most = max(max(values) for values in runs.values())
    start, length = left + LABELS_WIDTH, WIDTH // COLUMNS - MARGIN - LABELS_WIDTH - FIGURES_WIDTH
    better = "more is better" if panel.more_is_better else "less is better"
    parts = [
        f'<text class="title" x="{left}" y="{top + 14}">{escape(measured.title_of(panel))}</text>',
        f'<text class="small" x="{left}" y="{top + 29}">{panel.unit}, {better}</text>',
    ]
    for index, (product, values) in enumerate(runs.items()):
        y = top + 38 + index * BAR_STEP
        middle = y + BAR_HEIGHT / 2
        width, low, high = (max(1.0, length * value / most) for value in (median(values), min(values), max(values)))
        parts += [
            f'<text x="{left}" y="{middle + 4:.0f}">{PRODUCTS[product]}</text>',
            f'<rect class="{product}" x="{start}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="2"/>',
            f'<path class="range" d="M{start + low:.1f} {middle}H{start + high:.1f}"/>',
            f'<text x="{start + max(width, high) + 6:.1f}" y="{middle + 4:.0f}">{_number(median(values))} {panel.unit}</text>',
        ]
    return parts


def _circumstances(measured: Iterable[Measured]) -> str:
    used = sorted({each.sitting["date"]: each.sitting for each in measured}.items())
    last = used[-1][1]
    days = ", ".join(dict.fromkeys(date[:10] for date, _ in used))
    machine, versions = last["machine"], last["versions"]
    where = f"{days}, {machine['cores']} cores ({machine['cpu']}), {versions['kafka']}"
    return f"{where}. Medians; the lines are the least and the most of the runs."


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.0f}"


if __name__ == "__main__":
    PATH.write_text(draw(sittings()), encoding="utf-8")
    print(PATH.name)
