"""One broker under inputs of every kind, bystanders and an ordinary client beside them, and what was seen of it meanwhile."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from protocol.apis import ListenerKind
from tests.attack.attacker import Attacker
from tests.attack.campaign import BEGIN_NS, PARTED_NS, QUIET_S, SETTLE_INTERVAL_S, Door
from tests.attack.canary import with_left_out
from tests.attack.guard import Guard
from tests.attack.loop_meter import Hold, between, read_holds
from tests.attack.mutation_attacks import make_topics
from tests.attack.report import DESCRIPTORS_SPARE, RETURNED_MB, Latency, latency_of
from tests.attack.target import Vitals, quiet_port
from tests.fuzz.bystanders import Bystanders
from tests.fuzz.inputs import Density, Input, Inputs, Known, Stage, apis_for
from tests.fuzz.sender import Findings, Sender, judge_answer, judge_stranger
from tests.fuzz.target import FuzzedBroker

SENDERS = {ListenerKind.CLIENT: 5, ListenerKind.CONTROLLER: 3}
WATCH_INTERVAL_S = 0.25
SETTLE_S = 60.0
KEPT_MB = 60.0
"""What the broker keeps by right: groups, offsets, subscriptions, pushed metrics, and the codecs of every API's every version."""
LOG_BYTES_PER_MINUTE = 150_000
"""Kinds of lines are limited a minute each: what a full disk would be made of is a line for each input."""
LOG_BYTES_FIRST = 500_000  # the first hundreds of topics, groups and refusals of each kind
HOLDS_SHOWN = 8
IN_FLIGHT_SHOWN = 9


class Plan(NamedTuple):
    """How much of it: whole rounds, or any number of them until the time is up."""

    seed: int
    density: Density
    rounds: int | None = 1
    seconds: float | None = None
    with_stacks: bool = False
    with_bystanders: bool = True
    door: Door = Door.OPEN


class Culprits(NamedTuple):
    """A hold of the loop, and the inputs that were under way when it began."""

    hold: Hold
    inputs: list[str]


@dataclass(slots=True)
class Report:
    """What was seen. Megabytes are 10^6 bytes."""

    stage: Stage
    seed: int
    seconds: float
    findings: Findings
    bystander_rounds: int
    before: Vitals
    after: Vitals
    peak_mb: float
    settled_s: float
    holds: list[Hold]
    culprits: list[Culprits]
    """Of the holds that computed longest; the longest by the clock are the disk's, or the machine's."""
    canary: Latency
    machine: Latency
    tracebacks: int
    runs: bool
    serves: bool
    failures: list[str] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """What must not be, whatever the machine: empty for a broker that withstood all inputs."""
        found = [*self.findings.failures, *self.failures]
        if not self.runs:
            found.append("the broker has ended")
        if self.tracebacks:
            found.append(f"{self.tracebacks} tracebacks")
        if self.after.rss_mb > self.before.rss_mb + KEPT_MB + RETURNED_MB:
            found.append(f"{self.after.rss_mb - self.before.rss_mb:.0f} MB stay")
        if self.after.descriptors > self.before.descriptors + DESCRIPTORS_SPARE:
            found.append(f"{self.after.descriptors - self.before.descriptors} descriptors stay")
        log_bytes = self.after.log_bytes - self.before.log_bytes
        if log_bytes > LOG_BYTES_FIRST + LOG_BYTES_PER_MINUTE * self.seconds / 60:
            found.append(f"{log_bytes / 1e6:.1f} MB of log")
        if self.stage is Stage.ALL:  # orders may rightly leave it without a controller, and its own clients behind
            if not self.serves:
                found.append("serves no longer")
            if self.canary.failed:
                found.append(f"an ordinary client failed {self.canary.failed} ×")
        return found


class Run:
    """One stage. Data and logs stay in `directory`."""

    def __init__(self, directory: Path, stage: Stage, plan: Plan) -> None:
        self._stage = stage
        self._plan = plan
        guard = None if plan.door is Door.OPEN else Guard(quiet_port, has_controllers=True)
        self._broker = FuzzedBroker(directory / stage, with_stacks=plan.with_stacks, guard=guard)
        self._findings = Findings()
        self._deadline_s: float | None = None
        self._has_ended = threading.Event()

    def run(self) -> Report:
        broker = self._broker
        try:
            broker.open()
            attacker = Attacker(broker, random.Random(self._plan.seed), 1.0, deadline_s=0.0)
            known = Known(make_topics(attacker), broker.cluster_id(), time.time_ns() // 1_000_000)
            time.sleep(QUIET_S)
            before = broker.vitals()
            broker.reset_peak()
            start_ns = time.monotonic_ns()
            senders, bystanders = self._start(known)
            suspects = self._watch(senders, before.log_bytes)
            bystanders.stop()
            end_ns = time.monotonic_ns()
            failures = [*bystanders.failures, *self._keep(suspects)]
            if broker.is_running and broker.serves():
                broker.delete_other_topics()
            settled_s = self._settle(before)
            return self._report(before, start_ns, end_ns, settled_s, bystanders, failures)
        finally:
            self._has_ended.set()
            broker.close()

    def _start(self, known: Known) -> tuple[list[Sender], Bystanders]:
        if self._plan.seconds is not None:
            self._deadline_s = time.monotonic() + self._plan.seconds
        senders = []
        for listener, count in SENDERS.items():
            inputs = Inputs(self._plan.seed, listener, self._stage, known)
            count = min(count, len(apis_for(listener, self._stage)))
            for part in range(count):
                ways = self._broker.ways(listener, self._plan.door)
                attacker = Attacker(self._broker, random.Random(0), 1.0, deadline_s=0.0, ways=ways)
                judge = judge_stranger if self._plan.door is Door.STRANGERS else judge_answer
                senders.append(Sender(attacker.connect, self._rounds(inputs, part, count), self._is_over, self._findings, judge))
        bystanders = Bystanders(self._broker, self._plan.seed, rounds_min=int(self._plan.with_bystanders), door=self._plan.door)
        for thread in (*senders, bystanders):
            thread.start()
        return senders, bystanders

    def _rounds(self, inputs: Inputs, part: int, parts: int) -> Iterator[Input]:
        numbers = itertools.count() if self._plan.rounds is None else range(self._plan.rounds)
        for number in numbers:
            yield from inputs.round(number, self._plan.density, part=part, parts=parts)

    def _is_over(self) -> bool:
        return self._has_ended.is_set() or (self._deadline_s is not None and time.monotonic() >= self._deadline_s)

    def _watch(self, senders: list[Sender], log_position: int) -> list[Input]:
        """Returns when all have ended, with what was sent shortly before the first traceback."""
        suspects: list[Input] = []
        while any(sender.is_alive() for sender in senders):
            time.sleep(WATCH_INTERVAL_S)
            if not suspects and self._broker.tracebacks_since(log_position):
                suspects = [found for sender in senders for found in list(sender.recent)]
        return suspects

    def _keep(self, suspects: list[Input]) -> list[str]:
        if not suspects:
            return []
        path = self._broker.directory / "suspects.txt"
        path.write_text("\n".join(f"{found}: {found.data.hex()}" for found in suspects))
        return [f"the inputs before the first traceback are in {path}"]

    def _settle(self, before: Vitals) -> float:
        """Wait until memory is back and closed connections are gone; returns how long it took."""
        started = time.monotonic()
        while self._broker.is_running and time.monotonic() - started < SETTLE_S:
            now = self._broker.vitals()
            if now.rss_mb <= before.rss_mb + KEPT_MB and now.descriptors <= before.descriptors + DESCRIPTORS_SPARE:
                break
            time.sleep(SETTLE_INTERVAL_S)
        return time.monotonic() - started

    def _report(self, before: Vitals, start_ns: int, end_ns: int, settled_s: float, bystanders: Bystanders, failures: list[str]) -> Report:
        broker = self._broker
        runs = broker.is_running
        holds = between(read_holds(broker.holds_path), start_ns, end_ns + PARTED_NS)
        return Report(
            stage=self._stage,
            seed=self._plan.seed,
            seconds=(end_ns - start_ns) / 1e9,
            findings=self._findings,
            bystander_rounds=bystanders.rounds_count,
            before=before,
            after=broker.vitals() if runs else before,
            peak_mb=broker.peak_mb() if runs else 0.0,
            settled_s=settled_s,
            holds=holds,
            culprits=[self._culprits(hold) for hold in sorted(holds, key=lambda hold: -hold.cpu_ns)[:HOLDS_SHOWN]],
            canary=self._latency("small", start_ns, end_ns),
            machine=self._latency("echo", start_ns, end_ns),
            tracebacks=broker.tracebacks_since(before.log_bytes),
            runs=runs,
            serves=runs and broker.serves(),
            failures=failures,
        )

    def _culprits(self, hold: Hold) -> Culprits:
        begin_ns = hold.end_ns - hold.late_ns
        found = [slow.input for slow in self._findings.slow if slow.start_ns - BEGIN_NS <= begin_ns <= slow.end_ns]
        return Culprits(hold, found[:IN_FLIGHT_SHOWN])

    def _latency(self, kind: str, start_ns: int, end_ns: int) -> Latency:
        canary = self._broker.canaries[kind]
        samples = canary.samples(start_ns, end_ns)
        durations = with_left_out((sample.duration_ns for sample in samples), canary.interval_ns)
        return latency_of(list(durations), sum(1 for sample in samples if sample.outcome))
