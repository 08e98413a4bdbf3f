"""Charts as SVG, made here: a line over time, a sparkline, a bar. The page's style sheet colours them; labels are text beside the SVG.

They stretch with the page (`preserveAspectRatio="none"`), so their lines have `vector-effect: non-scaling-stroke`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

WIDTH, HEIGHT = 600, 120
SPARK_WIDTH, SPARK_HEIGHT = 96, 20
GAP_S = 95.0
"""A line is broken where nothing was measured for longer, or for three times as long as is usual in its values."""
PARTS = (1 / 6, 1 / 2, 1)
"""Of the time, for a chart that has just begun."""
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Chart:
    """What a template needs: the drawing, and the words at its axes."""

    svg: Markup
    top: str
    newest: str
    since: str
    label: str
    is_empty: bool


def chart(label: str, points: Points, now_s: float, span_s: float, to_text: Callable[[float], str]) -> Chart:
    """The last `span_s` seconds, or the part of them that something is known of, on a scale from 0."""
    shown = [each for each in points if each[0] >= now_s - span_s]
    if shown:
        span_s = next(share for each in PARTS if (share := span_s * each) >= now_s - shown[0][0] or each == 1)
    top = nice(max((value for _, value in shown), default=0.0))
    since = f"{span_s / 3_600:g} h ago" if span_s >= 7_200 else f"{span_s / 60:g} min ago"
    drawn = _line(shown, now_s, span_s, top, WIDTH, HEIGHT)
    grid = "".join(f'<line class="grid" x1="0" x2="{WIDTH}" y1="{y}" y2="{y}"/>' for y in (0.5, HEIGHT / 2, HEIGHT - 0.5))
    svg = Markup('<svg viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true">{}{}</svg>').format(
        WIDTH, HEIGHT, Markup(grid), drawn
    )
    newest = to_text(shown[-1][1]) if shown else ""
    return Chart(svg, to_text(top), newest, since, label, not shown)


def spark(points: Points, now_s: float, span_s: float = 3_600.0) -> Markup:
    """A small line without axes; nothing if there are fewer than two values."""
    shown = [each for each in points if each[0] >= now_s - span_s]
    if len(shown) < 2:
        return Markup("")
    top = max(value for _, value in shown) or 1.0
    return Markup('<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true">{}</svg>').format(
        SPARK_WIDTH, SPARK_HEIGHT, _line(shown, now_s, span_s, top, SPARK_WIDTH, SPARK_HEIGHT)
    )


def bar(share: float | None, kind: str = "") -> Markup:
    """How much of a whole, from 0 to 1."""
    if share is None:
        return Markup("")
    width = round(100 * min(max(share, 0.0), 1.0), 1)
    return Markup(
        '<svg class="bar {}" viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label="{}%">'
        '<rect class="whole" width="100" height="6"/><rect class="part" width="{}" height="6"/></svg>'
    ).format(kind, round(width), width)


def nice(value: float) -> float:
    """The least of 1, 2, 2.5 and 5 times a power of ten that is not below `value`; 1 for nothing."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(each * power for each in (1, 2, 2.5, 5, 10) if each * power >= value * 0.999)


def _line(points: Points, now_s: float, span_s: float, top: float, width: int, height: int) -> Markup:
    """The line and the area under it, broken where nothing was measured."""
    parts: list[list[tuple[float, float]]] = []
    steps = sorted(b[0] - a[0] for a, b in itertools.pairwise(points))
    gap_s = max(GAP_S, 3 * steps[len(steps) // 2]) if steps else GAP_S
    before_s = -math.inf
    for time_s, value in points:
        if time_s - before_s > gap_s:
            parts.append([])
        before_s = time_s
        x = width * (1 - (now_s - time_s) / span_s)
        parts[-1].append((min(max(x, 0.0), float(width)), (height - 1) - (height - 2) * min(max(value / top, 0.0), 1.0)))
    drawn = []
    for part in parts:
        if len(part) == 1:
            part.append((part[0][0] + width / 300, part[0][1]))
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in part)
        drawn.append(f'<polygon class="area" points="{part[0][0]:.1f},{height} {line} {part[-1][0]:.1f},{height}"/>')
        drawn.append(f'<polyline class="line" points="{line}"/>')
    return Markup("".join(drawn))  # numbers only
