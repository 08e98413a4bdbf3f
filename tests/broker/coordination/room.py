"""A runtime whose shards keep named totals: the smallest coordinator there can be. `add` is an operation that computes on the state."""

from __future__ import annotations

import logging
from typing import Any

from broker.coordination.records import CoordinatorRecord, CoordinatorResult, RecordTable, RecordType
from broker.coordination.runtime import CoordinatorRuntime
from broker.coordination.shard import Shard
from broker.coordination.timers import Operation
from broker.loop.clock import Timer
from broker.observability.limited_log import LimitedLog
from protocol.errors import ErrorCode, KafkaError
from protocol.schema import Int64, String, message
from tests.broker.coordination.memory_log import MemoryLog
from tests.support.clock import ManualClock

WRITE_TIMEOUT_MS = 5_000


@message(key=7, versions=(0, 0), flexible=None)
class TotalKey:
    name: String = ""


@message(versions=(0, 0), flexible=None)
class TotalValue:
    total: Int64 = 0


class Totals:
    """The state machine. `refuses_to_replay` is a total that it has a bug with."""

    refuses_to_replay: int | None = None

    def __init__(self, shard: Shard[Totals]) -> None:
        self.shard = shard
        self.totals: dict[str, int] = {}
        self.ended_transactions: list[tuple[int, bool]] = []
        self.replayed: list[tuple[str, int]] = []
        """Names, with the producers in whose transactions they were written."""
        self.is_loaded = False
        self.is_unloaded = False

    def add(self, name: str, amount: int) -> CoordinatorRecord:
        total = self.totals.get(name, 0) + amount
        return CoordinatorRecord(TotalKey(name=name), TotalValue(total=total) if total else None)

    def committed(self) -> dict[str, int]:
        return dict(self.shard.timeline.committed(self.totals))

    def replay(self, key: TotalKey, value: TotalValue | None, producer_id: int) -> None:
        self.replayed.append((key.name, producer_id))
        if value is None:
            self.shard.timeline.remove(self.totals, key.name)
            return
        if value.total == self.refuses_to_replay:
            raise ValueError("a bug")
        self.shard.timeline.put(self.totals, key.name, value.total)

    def replay_end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        self.ended_transactions.append((producer_id, is_commit))

    def on_loaded(self) -> None:
        self.is_loaded = True

    def on_unloaded(self) -> None:
        self.is_unloaded = True


TOTALS: RecordTable[Totals] = RecordTable(
    [RecordType(key_class=TotalKey, value_class=TotalValue, value_version=lambda value: 0, owner=lambda room: room.replay)]
)


class Room:
    """Partition 0 is led, in epoch 0, and loaded, unless said otherwise. `answers` has what operations were told, in order."""

    def __init__(self, log: Any = None, *, is_loaded: bool = True) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog() if log is None else log
        self.answers: list[tuple[str, ErrorCode]] = []
        self.loaded_count = 0
        self.runtime: CoordinatorRuntime[Totals] = CoordinatorRuntime(
            "totals",
            node_id=1,
            coordinator_log=self.log,
            clock=self.clock,
            table=TOTALS,
            make_machine=Totals,
            write_timeout_ms=WRITE_TIMEOUT_MS,
            limited_log=LimitedLog(logging.getLogger("barnabas.coordination"), self.clock),
            on_all_loaded=self._count_loaded,
        )
        self.runtime.start()
        self.runtime.on_elected(0, 0)
        if is_loaded:
            self.clock.advance(0)

    def _count_loaded(self) -> None:
        self.loaded_count += 1

    @property
    def shard(self) -> Shard[Totals]:
        return self.runtime.get_shard("any")

    @property
    def machine(self) -> Totals:
        return self.shard.machine

    def add(self, name: str, amount: int, label: str = "") -> None:
        record = self.machine.add(name, amount)
        self.shard.write(CoordinatorResult([record], lambda error: self.answers.append((label or f"{name}+{amount}", error))))

    def wait(self, label: str) -> None:
        """An operation without records."""
        self.shard.write(CoordinatorResult([], lambda error: self.answers.append((label, error))))

    def schedule(self, delay_ms: int, operation: Operation) -> None:
        self.shard.timers.schedule(("test",), delay_ms, operation)

    def run_one_timer(self) -> None:
        timers: list[Timer] = list(self.clock.pending_timers)
        timers[0].cancel()
        timers[0].fire()  # type: ignore[attr-defined]

    def refusal(self) -> ErrorCode:
        """Why there is no shard."""
        try:
            self.runtime.get_shard("any")
        except KafkaError as e:
            return e.code
        raise AssertionError("there is a shard")
