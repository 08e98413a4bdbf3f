"""What a load has done so far: a live line on stderr while it runs, if that is a terminal, and the summary."""

from __future__ import annotations

import sys
import time
from typing import Any

from barnabas.cli.output import Output, byte_rate, human_bytes, rate, thousands
from barnabas.cli.perf.latencies import Latencies

LIVE_S = 1.0
CLEAR_LINE = "\r\x1b[K"


class Meter:
    """Owns the counts of a load that begins when it is made."""

    def __init__(self) -> None:
        self.records = 0
        self.size_bytes = 0
        self.latencies = Latencies()
        self._is_live = sys.stderr.isatty()
        self._began_s = self._shown_s = time.monotonic()
        self._shown = (0, 0)
        self._ended_s: float | None = None

    def add(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.size_bytes += size_bytes

    def elapsed_s(self) -> float:
        return (self._ended_s or time.monotonic()) - self._began_s

    def tick(self) -> None:
        """Show what the last second has brought."""
        now_s = time.monotonic()
        if not self._is_live or now_s - self._shown_s < LIVE_S:
            return
        span_s = now_s - self._shown_s
        records, size_bytes = self.records - self._shown[0], self.size_bytes - self._shown[1]
        self._shown_s, self._shown = now_s, (self.records, self.size_bytes)
        p99 = self.latencies.quantile_ms(0.99)
        latency = "" if p99 is None else f", p99 so far {p99:g} ms"
        rates = f"{rate(records / span_s)}/s, {byte_rate(size_bytes / span_s)}"
        print(f"{CLEAR_LINE}{thousands(self.records)} records, {rates}{latency}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        self._ended_s = time.monotonic()
        if self._is_live:
            print(CLEAR_LINE, end="", file=sys.stderr, flush=True)

    def summary(self) -> dict[str, Any]:
        seconds = self.elapsed_s()
        per_s = 1 / seconds if seconds else 0.0
        return {
            "records": self.records,
            "size_bytes": self.size_bytes,
            "seconds": round(seconds, 3),
            "records_per_s": round(self.records * per_s),
            "bytes_per_s": round(self.size_bytes * per_s),
            "latency_ms": self.latencies.summary_ms(),
        }


def show(output: Output, summary: dict[str, Any], what: str) -> None:
    if output.is_data:
        output.data(summary)
        return
    output.line(
        f"{thousands(summary['records'])} records {what} in {summary['seconds']:g} s: {thousands(summary['records_per_s'])} records/s, "
        f"{human_bytes(summary['bytes_per_s'])}/s"
    )
    if summary["latency_ms"]:
        output.line("latency: " + ", ".join(f"{name} {value:g} ms" for name, value in summary["latency_ms"].items()))
