"""The quota managers beside Apache Kafka's, in random worlds: after the same changes and records the same throttle times and limits."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from broker.security.quotas.client_quota_manager import ClientQuotaManager, RequestQuotaManager
from broker.security.quotas.controller_mutation_quota import ControllerMutationQuotaManager
from broker.security.quotas.quota_limits import ABSENT, DEFAULT, QuotaScope
from broker.security.quotas.quota_metrics import PRODUCE
from tests.support.kafka import java_command

WORLDS = 60
STEPS = 1000
START_MS = time.time_ns() // 1_000_000  # Kafka's sensors expire by the system's clock

USERS = ("a", "user b*")
CLIENT_IDS = ("c", "d", "")

Record = Callable[[str, str, float, int], int]


def throttling(kind: str, windows_count: int) -> tuple[ClientQuotaManager | ControllerMutationQuotaManager, Record]:
    """A manager, and what records with it and returns the throttle time."""
    if kind == "mutation":
        mutations = ControllerMutationQuotaManager(window_ms=1000, windows_count=windows_count)
        return mutations, lambda *arguments: record_mutations(mutations, *arguments)
    manager = (
        RequestQuotaManager(window_ms=1000, windows_count=windows_count)
        if kind == "request"
        else ClientQuotaManager(PRODUCE, window_ms=1000, windows_count=windows_count)
    )
    return manager, lambda *arguments: manager.record(*arguments) if manager.is_enabled else 0


def record_mutations(manager: ControllerMutationQuotaManager, user: str, client_id: str, value: float, now_ms: int) -> int:
    quota = manager.quota_of(user, client_id, now_ms, is_strict=True)
    quota.record(value, now_ms)
    return quota.throttle_time_ms(now_ms)


class Script:
    """Commands for Quotas.java, and what our code says to each record."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.expected: list[str] = []

    def add(self, *words: object) -> None:
        self.commands.append("\t".join(str(word) for word in words))

    def write_world(self, chance: random.Random) -> None:
        kind, windows_count = chance.choice(("produce", "request", "mutation")), chance.choice((2, 3, 11))
        manager, record = throttling(kind, windows_count)
        self.add("new", kind, windows_count)
        now_ms = START_MS
        for _ in range(STEPS):
            if chance.random() < 0.06:
                scope = random_scope(chance)
                limit = chance.choice((None, None, 10.0, 33.3, 100.0, 500.0))
                manager.set_limit(scope, limit)
                self.add("limit", *map(part, scope), "-" if limit is None else limit)
                continue
            now_ms += chance.choice((0, 0, 1, 7, 100, 400, 1000)) if chance.random() < 0.97 else chance.choice((3000, 12_000))
            user, client_id = chance.choice(USERS), chance.choice(CLIENT_IDS)
            value = float(chance.choice((0, 1, 10, 50, 300, 2000, -20)))
            self.add("record", user, client_id, value, now_ms)
            self.expected.append(f"{record(user, client_id, value, now_ms)} {manager.limit_of(user, client_id)}")


def random_scope(chance: random.Random) -> QuotaScope:
    while True:
        scope = QuotaScope(chance.choice((*USERS, DEFAULT, ABSENT)), chance.choice(("c", "d", DEFAULT, ABSENT)))
        if scope != (ABSENT, ABSENT):
            return scope


def part(name: str | None) -> str:
    return "*" if name is DEFAULT else name or "-"


def with_numbers(answer: str) -> tuple[int, float]:
    throttle_time_ms, limit = answer.split()
    return int(throttle_time_ms), float(limit)


def test_kafka_throttles_for_the_same_times(tmp_path: Path) -> None:
    script = Script()
    for seed in range(WORLDS):
        script.write_world(random.Random(seed))
    commands, answers = tmp_path / "commands", tmp_path / "answers"
    commands.write_text("".join(f"{command}\n" for command in script.commands))

    subprocess.run(java_command("Quotas", str(commands), str(answers)), check=True, capture_output=True, timeout=120)

    records = [command for command in script.commands if command.startswith("record")]
    told = zip(records, map(with_numbers, script.expected), map(with_numbers, answers.read_text().splitlines()), strict=True)
    assert [each for each in told if each[1] != each[2]] == []
    assert sum(with_numbers(answer)[0] > 0 for answer in script.expected) > len(records) // 4, "hardly any record was throttled"
