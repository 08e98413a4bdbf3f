"""A run's report as text."""

from __future__ import annotations

from collections.abc import Iterator

from tests.attack.report import HOLD_TARGET_MS
from tests.fuzz.run import Report
from tests.fuzz.sender import Outcome

CLOSED_SHOWN = 12


def lines_of(report: Report) -> Iterator[str]:
    findings = report.findings
    yield (
        f"{report.stage}: {findings.inputs_count} inputs in {report.seconds:.0f} s (seed {report.seed}), "
        f"{report.bystander_rounds} rounds of slow senders, floods, bombs and other protocols beside them"
    )
    yield "| input | " + " | ".join(Outcome) + " |"
    yield "| --- | " + " | ".join("---" for _ in Outcome) + " |"
    for strike in sorted({strike for strike, _ in findings.outcomes}):
        yield f"| {strike} | " + " | ".join(str(findings.outcomes[strike, outcome]) for outcome in Outcome) + " |"
    yield (
        f"memory before / peak / after: {report.before.rss_mb:.0f} / {report.peak_mb:.0f} / {report.after.rss_mb:.0f} MB, back in "
        f"{report.settled_s:.1f} s; log {(report.after.log_bytes - report.before.log_bytes) / 1000:.0f} KB"
    )
    yield (
        f"an ordinary client p50 / p99 / max: {report.canary.p50_ms:.1f} / {report.canary.p99_ms:.1f} / {report.canary.max_ms:.0f} ms, "
        f"failed {report.canary.failed} of {report.canary.rounds}; the machine {report.machine.p99_ms:.1f} / {report.machine.max_ms:.0f} ms"
    )
    longest_ms = max((hold.cpu_ns for hold in report.holds), default=0) / 1e6
    count = sum(1 for hold in report.holds if hold.cpu_ns / 1e6 > HOLD_TARGET_MS)
    yield f"longest hold of the loop {longest_ms:.1f} ms of CPU; over {HOLD_TARGET_MS:.0f} ms {count}"
    yield "(own / CPU / wall, and what was under way):"
    for hold, inputs in report.culprits:
        yield f"    {hold.own_ns / 1e6:.1f} / {hold.cpu_ns / 1e6:.1f} / {hold.late_ns / 1e6:.0f} ms: {'; '.join(inputs) or '–'}"
    if findings.closed_whole:
        shown = ", ".join(f"{api} × {count}" for api, count in findings.closed_whole.most_common(CLOSED_SHOWN))
        yield f"well-formed requests that ended their connection: {shown}"
    yield f"found: {'; '.join(report.faults) or 'nothing'}"
