"""Numbers and times as the pages write them: filters of the templates."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from barnabas.cli.output import human_bytes, human_duration, printable, thousands

NONE = "–"
THIN = "\N{NARROW NO-BREAK SPACE}"


def number(value: float | None) -> str:
    return NONE if value is None else thousands(round(value))


def rate(value: float | None) -> str:
    """Of a second, in three digits: 0, 0.4, 12, 3.4 k."""
    if value is None:
        return NONE
    if abs(value) < 0.05:
        return "0"
    if abs(value) < 9.95:
        return f"{value:.1f}"
    return short(value)


def short(value: float | None) -> str:
    """950, 3.4 k, 12 M."""
    if value is None:
        return NONE
    size, unit = float(value), ""
    for unit in ("", "k", "M", "G", "T"):
        if abs(size) < 999.5 or unit == "T":
            break
        size /= 1_000
    text = f"{size:.1f}" if unit and abs(size) < 9.95 else f"{size:.0f}"
    return f"{text}{THIN}{unit}" if unit else text


def size(value: float | None) -> str:
    return NONE if value is None else human_bytes(int(value)).replace(" ", THIN)


def duration(value_ms: float | None) -> str:
    return NONE if value_ms is None else human_duration(int(value_ms))


def clock(time_ms: float | None) -> str:
    """In UTC, to the millisecond."""
    if time_ms is None:
        return NONE
    try:
        moment = datetime.fromtimestamp(time_ms / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{int(time_ms) % 1_000:03}"


def ago(time_ms: float | None) -> str:
    return NONE if time_ms is None else f"{human_duration(int(time.time() * 1_000 - time_ms))} ago"


def trend(slope: float | None, lag: float | None) -> str:
    """What a lag does, in words; "" while that is not known."""
    if slope is None or lag is None:
        return ""
    if abs(slope) < max(0.02, lag / 100_000):
        return "steady" if lag else ""
    if slope > 0:
        return f"↗ grows by {rate(slope)}/s"
    return f"↘ falls, done in {human_duration(int(lag / -slope * 1_000))}" if lag else "↘ falls"


FILTERS = {
    "number": number, "rate": rate, "short": short, "size": size, "duration": duration, "clock": clock, "ago": ago, "trend": trend,
    "printable": printable,
}  # fmt: skip
