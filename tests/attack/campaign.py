"""Runs attacks against a broker of this checkout, and measures from outside and from inside what they do to it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.attack.attacker import Attacker, Step
from tests.attack.attacks import ATTACKS, Attack
from tests.attack.canary import with_left_out
from tests.attack.guard import Guard
from tests.attack.loop_meter import Hold, between, read_holds
from tests.attack.report import DESCRIPTORS_SPARE, RETURNED_MB, Latency, Row, StepHold, latency_of
from tests.attack.target import AttackedBroker, Vitals, quiet_port

QUIET_S = 0.5  # beside the canary alone, before an attack: what memory and descriptors are compared with
SETTLE_INTERVAL_S = 0.2
PARTED_NS = 50_000_000  # a hold may end this much after the request that caused it, when its connection is closed
BEGIN_NS = 1_000_000  # the tick before a request may be so much older than the request
FULL_SECONDS = 900
"""From this length on a campaign is a full one."""
SETTLE_FULL_S, SETTLE_SHORT_S = 60.0, 10.0
SETTLED_FULL_MB = 5.0
"""A full campaign waits until memory is back but for this, not only until it is no fault any more: else it would not tell what stays."""


class Door(Enum):
    """How attackers come to the broker."""

    OPEN = "open"
    """Nobody is asked who he is."""
    LOGGED_IN = "logged in"
    """By TLS and SASL, with an authorizer and rights."""
    STRANGERS = "strangers"
    """Up to the login, by each kind of listener in turn."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of it. `scale` 1 is what the attacks are meant to be; `settle_s` is how long memory may take to come back."""

    seed: int
    scale: float
    attack_seconds: float
    settle_s: float
    is_shared: bool = False
    """One broker for all attacks without settings of their own, so that what one leaves is there at the next."""
    with_stacks: bool = False
    settled_mb: float = RETURNED_MB
    """Memory is back when no more is left of what an attack took, beside what the broker may keep."""
    with_census: bool = False
    """The broker writes what its memory consists of, once the row is made."""
    door: Door = Door.OPEN

    @classmethod
    def of_length(cls, seconds: float, attacks: int, seed: int, *, is_shared: bool = False, with_stacks: bool = False) -> Plan:
        is_full = seconds >= FULL_SECONDS
        scale = min(seconds / FULL_SECONDS, 1.0)
        settle_s = SETTLE_FULL_S if is_full else SETTLE_SHORT_S
        # Most attacks are over long before their time is: who takes long may have what the others leave.
        settled_mb = SETTLED_FULL_MB if is_full else RETURNED_MB
        return cls(seed, scale, max(seconds / attacks * 8, 3.0), settle_s, is_shared, with_stacks, settled_mb)


class Campaign:
    """`run` yields a row as each attack ends. Data and logs stay in `directory`."""

    def __init__(self, directory: Path, plan: Plan, attacks: Sequence[Attack] = ATTACKS) -> None:
        self._directory = directory
        self._plan = plan
        self._attacks = attacks
        self._brokers = 0

    def run(self) -> Iterator[Row]:
        shared: AttackedBroker | None = None
        try:
            for attack in self._attacks:
                if not self._plan.is_shared or attack.settings:
                    with self._own_broker(attack) as broker:
                        yield self._strike(broker, attack)
                    continue
                if shared is None:
                    shared = self._new_broker(attack)
                    shared.open()
                yield self._strike(shared, attack)
        finally:
            if shared is not None:
                shared.close()

    @contextmanager
    def _own_broker(self, attack: Attack) -> Iterator[AttackedBroker]:
        broker = self._new_broker(attack)
        try:
            broker.open()
            yield broker
        finally:
            broker.close()

    def _new_broker(self, attack: Attack) -> AttackedBroker:
        self._brokers += 1
        name = "shared" if self._plan.is_shared and not attack.settings else attack.name
        guard = None if self._plan.door is Door.OPEN else Guard(quiet_port)
        directory = self._directory / f"{self._brokers:02}-{name}"
        return AttackedBroker(directory, attack.settings, with_stacks=self._plan.with_stacks, guard=guard)

    def _strike(self, broker: AttackedBroker, attack: Attack) -> Row:
        plan = self._plan
        time.sleep(QUIET_S)
        before = broker.vitals()
        broker.reset_peak()
        attacker = Attacker(
            broker, random.Random(f"{plan.seed} {attack.name}"), plan.scale, deadline_s=time.monotonic() + plan.attack_seconds
        )
        if plan.door is Door.STRANGERS:
            assert broker.guard is not None
            attacker.ways = broker.guard.strangers()
        start_ns = time.monotonic_ns()
        try:
            attack.run(attacker)
        except (OSError, EOFError, AssertionError) as error:
            attacker.failures.append(f"the attack ended early: {error!r:.200}")
        end_ns = time.monotonic_ns()
        self._clear(broker, attacker)
        settled_s = self._settle(broker, before.rss_mb + attack.kept_mb + plan.settled_mb, before.descriptors + DESCRIPTORS_SPARE)
        self._keep_suspects(broker, attacker)
        row = self._row(broker, attack, attacker, before, start_ns, end_ns, settled_s)
        if plan.with_census and broker.is_running:
            broker.take_census()
        return row

    def _clear(self, broker: AttackedBroker, attacker: Attacker) -> None:
        try:
            broker.delete_other_topics()
        except (OSError, EOFError) as error:
            attacker.failures.append(f"its topics could not be deleted: {error!r:.200}")

    def _settle(self, broker: AttackedBroker, enough_mb: float, enough_descriptors: int) -> float:
        """Wait until memory is back and closed connections are gone, at most the plan's time; returns how long it took."""
        started = time.monotonic()
        while broker.is_running and time.monotonic() - started < self._plan.settle_s:
            now = broker.vitals()
            if now.rss_mb <= enough_mb and now.descriptors <= enough_descriptors:
                break
            time.sleep(SETTLE_INTERVAL_S)
        return time.monotonic() - started

    def _keep_suspects(self, broker: AttackedBroker, attacker: Attacker) -> None:
        if attacker.suspects:
            (broker.directory / "suspects.txt").write_text("\n".join(frame.hex() for frame in attacker.suspects))

    def _row(
        self, broker: AttackedBroker, attack: Attack, attacker: Attacker, before: Vitals, start_ns: int, end_ns: int, settled_s: float
    ) -> Row:
        serves = broker.is_running and broker.serves()
        time.sleep(QUIET_S)  # the canaries' last rounds end, and descriptors of closed connections are gone
        after = broker.vitals() if broker.is_running else before._replace(rss_mb=0.0, descriptors=0)
        holds = between(read_holds(broker.holds_path), start_ns, end_ns + PARTED_NS)
        longest = _longest(holds)
        honest = {kind: _latency(broker, kind, start_ns, end_ns) for kind in broker.canaries if kind not in ("small", "echo")}
        return Row(
            name=attack.name,
            seconds=(end_ns - start_ns) / 1e9,
            answered=attacker.tally.answered,
            closed=attacker.tally.closed,
            silent=attacker.tally.silent,
            canary=_latency(broker, "small", start_ns, end_ns),
            machine=_latency(broker, "echo", start_ns, end_ns),
            honest={kind: found for kind, found in honest.items() if found.rounds},
            hold_own_ms=longest.own_ns / 1e6,
            hold_cpu_ms=max((hold.cpu_ns for hold in holds), default=0) / 1e6,
            hold_late_ms=max((hold.late_ns for hold in holds), default=0) / 1e6,
            before_mb=before.rss_mb,
            peak_mb=broker.peak_mb() if broker.is_running else 0.0,
            after_mb=after.rss_mb,
            settled_s=settled_s,
            kept_mb=attack.kept_mb,
            descriptors_before=before.descriptors,
            descriptors_after=after.descriptors,
            log_bytes=broker.log_path.stat().st_size - before.log_bytes,
            tracebacks=broker.tracebacks_since(before.log_bytes),
            serves=serves,
            failures=attacker.failures,
            steps=[_step_hold(step, holds) for step in attacker.steps],
            notes=attacker.notes,
        )


def _latency(broker: AttackedBroker, kind: str, start_ns: int, end_ns: int) -> Latency:
    canary = broker.canaries[kind]
    samples = canary.samples(start_ns, end_ns)
    durations = with_left_out((sample.duration_ns for sample in samples), canary.interval_ns)
    return latency_of(list(durations), sum(1 for sample in samples if sample.outcome))


def _longest(holds: Sequence[Hold]) -> Hold:
    return max(holds, key=lambda hold: hold.own_ns, default=Hold(0, 0, 0, 0))


def _step_hold(step: Step, holds: Sequence[Hold]) -> StepHold:
    """Of the holds that began within the step: one may last into the next, while what the step asked for is freed."""
    began = [hold for hold in holds if step.start_ns - BEGIN_NS <= hold.end_ns - hold.late_ns <= step.end_ns]
    longest = _longest(began)
    return StepHold(step.name, longest.own_ns / 1e6, longest.cpu_ns / 1e6, longest.late_ns / 1e6)
