"""What a campaign has found: one row an attack, as a table and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

HOLD_TARGET_MS = 50.0  # of the loop's thread's CPU
P99_TARGET_MS, MAX_TARGET_MS = 25.0, 150.0  # an honest client's, above those of an echo process beside it
RETURNED_MB = 100.0  # memory after an attack may exceed that before it by so much
DESCRIPTORS_SPARE = 16  # segments that were read, connections of the canary that it opened anew
LOG_BYTES_MAX = 500_000  # a flood of 100,000 requests may create and delete topics, which is told each time
LOG_BYTES_PER_MINUTE = 150_000  # after the first: kinds of lines are limited a minute each
FAILURES_SHOWN = 5
STEPS_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Latency:
    """Of one canary's rounds during an attack, those that a stall left out included; in milliseconds."""

    rounds: int
    failed: int
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True, slots=True)
class StepHold:
    """The longest hold within a step."""

    name: str
    own_ms: float
    cpu_ms: float
    late_ms: float


@dataclass(slots=True)
class Row:
    """One attack. A hold is `late` by the wall clock, of which `cpu` is the loop's thread running; `own` is all but the time in which
    the machine gave the core to others."""

    name: str
    seconds: float
    answered: int
    closed: int
    silent: int
    canary: Latency
    machine: Latency
    honest: dict[str, Latency]
    hold_own_ms: float
    hold_cpu_ms: float
    hold_late_ms: float
    before_mb: float
    peak_mb: float
    after_mb: float
    settled_s: float
    """Until memory was back, or until waiting for it ended."""
    kept_mb: float
    descriptors_before: int
    descriptors_after: int
    log_bytes: int
    tracebacks: int
    serves: bool
    failures: list[str]
    steps: list[StepHold] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """What must not be, whatever the machine: empty for a broker that withstood the attack."""
        found = []
        if not self.serves:
            found.append("serves no longer")
        if self.tracebacks:
            found.append(f"{self.tracebacks} tracebacks")
        if self.after_mb > self.before_mb + self.kept_mb + RETURNED_MB:
            found.append(f"{self.after_mb - self.before_mb:.0f} MB stay")
        if self.descriptors_after > self.descriptors_before + DESCRIPTORS_SPARE:
            found.append(f"{self.descriptors_after - self.descriptors_before} descriptors stay")
        if self.log_bytes > LOG_BYTES_MAX + LOG_BYTES_PER_MINUTE * max(self.seconds / 60 - 1, 0):
            found.append(f"{self.log_bytes / 1e6:.1f} MB of log")
        if self.canary.failed:
            found.append(f"canary failed {self.canary.failed} ×")
        return found + self.failures[:FAILURES_SHOWN]

    @property
    def verdict(self) -> str:
        slow = [f"holds {self.hold_cpu_ms:.0f} ms"] if self.hold_cpu_ms > HOLD_TARGET_MS else []
        if self.canary.p99_ms > self.machine.p99_ms + P99_TARGET_MS:
            slow.append(f"canary's p99 {self.canary.p99_ms:.0f} ms")
        if self.canary.max_ms > self.machine.max_ms + MAX_TARGET_MS:
            slow.append(f"canary's maximum {self.canary.max_ms:.0f} ms")
        return ", ".join([*self.faults, *slow]) or "ok"


def latency_of(durations_ns: Sequence[int], failed: int) -> Latency:
    ordered = sorted(durations_ns) or [0]
    p50, p99 = (ordered[math.ceil(len(ordered) * share) - 1] / 1e6 for share in (0.5, 0.99))
    return Latency(len(durations_ns), failed, p50, p99, ordered[-1] / 1e6)


HEADING = (
    "| attack | s | answered / closed / silent | canary p50 / p99 / max | machine p99 / max | honest p50 / max "
    "| longest hold: own / CPU / wall | RSS before / peak / after | back in s | log KB | verdict |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)
"""Of the table, in Markdown. Times in milliseconds, memory in MB."""


def line(row: Row) -> str:
    """The table's line of `row`."""
    honest = ", ".join(f"{kind} {found.p50_ms:.0f} / {found.max_ms:.0f}" for kind, found in row.honest.items()) or "–"
    return (
        f"| {row.name} | {row.seconds:.1f} | {row.answered} / {row.closed} / {row.silent} "
        f"| {row.canary.p50_ms:.1f} / {row.canary.p99_ms:.1f} / {row.canary.max_ms:.0f} "
        f"| {row.machine.p99_ms:.1f} / {row.machine.max_ms:.0f} | {honest} "
        f"| {row.hold_own_ms:.1f} / {row.hold_cpu_ms:.1f} / {row.hold_late_ms:.0f} "
        f"| {row.before_mb:.0f} / {row.peak_mb:.0f} / {row.after_mb:.0f} | {row.settled_s:.1f} | {row.log_bytes / 1000:.1f} "
        f"| {row.verdict} |"
    )


def slow_steps(rows: Sequence[Row]) -> str:
    """The steps that held the loop longer than the target, the longest first."""
    slow = [(row.name, step) for row in rows for step in row.steps if step.cpu_ms > HOLD_TARGET_MS]
    slow.sort(key=lambda found: -found[1].cpu_ms)
    if not slow:
        return f"No step held the loop for more than {HOLD_TARGET_MS:.0f} ms of CPU."
    lines = ["| hold: own / CPU / wall, ms | attack | request |", "| --- | --- | --- |"]
    lines += [f"| {step.own_ms:.1f} / {step.cpu_ms:.1f} / {step.late_ms:.0f} | {name} | {step.name} |" for name, step in slow[:STEPS_SHOWN]]
    if len(slow) > STEPS_SHOWN:
        lines.append(f"| | | and {len(slow) - STEPS_SHOWN} more |")
    return "\n".join(lines)


def notes(rows: Sequence[Row]) -> str:
    """What the attacks have measured themselves."""
    return "\n".join(f"{row.name}: {note}" for row in rows for note in row.notes)


def growth(rows: Sequence[Row]) -> str:
    """For each attack that was repeated: the memory after each repetition."""
    names = dict.fromkeys(row.name for row in rows)
    after = {name: [row.after_mb for row in rows if row.name == name] for name in names}
    lines = [f"{name}: {' '.join(f'{each:.0f}' for each in found)}" for name, found in after.items() if len(found) > 1]
    return "\n".join(["MB after each repetition", *lines]) if lines else ""


def save(rows: Sequence[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([{**asdict(row), "verdict": row.verdict} for row in rows], indent=1) + "\n")
