"""Purgatory: who completes, when, and that nothing stays behind."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from broker.replication.purgatory import DelayedOperation, Purgatory
from tests.support.clock import ManualClock


class Countdown(DelayedOperation):
    """Completes when `left` has reached zero; records what happened to it."""

    __slots__ = ("events", "left", "purgatory_to_notify")

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left
        self.events: list[str] = []
        self.purgatory_to_notify: Purgatory | None = None

    def try_complete(self, key: Hashable | None) -> bool:
        return self.left <= 0

    def on_complete(self) -> None:
        self.events.append("complete")
        if self.purgatory_to_notify is not None:
            self.purgatory_to_notify.notify("a")

    def on_expire(self) -> None:
        self.events.append("expire")


def test_operation_that_can_complete_at_once_is_not_parked_and_arms_no_timer() -> None:
    clock = ManualClock()
    purgatory = Purgatory(clock)
    operation = Countdown(0)

    assert purgatory.try_complete_else_watch(operation, ["a"], 100)

    assert operation.events == ["complete"]
    assert clock.pending_timers == []
    assert purgatory.size == 0


def test_notify_completes_only_operations_whose_condition_holds() -> None:
    purgatory = Purgatory(ManualClock())
    ready, waiting = Countdown(1), Countdown(1)
    purgatory.try_complete_else_watch(ready, ["a"], 100)
    purgatory.try_complete_else_watch(waiting, ["a"], 100)
    ready.left = 0

    completed_count = purgatory.notify("a")

    assert completed_count == 1
    assert ready.events == ["complete"]
    assert waiting.events == []
    assert purgatory.size == 1


def test_operation_is_woken_by_any_of_its_keys_and_then_leaves_all_of_them() -> None:
    clock = ManualClock()
    purgatory = Purgatory(clock)
    operation = Countdown(1)
    purgatory.try_complete_else_watch(operation, ["a", "b"], 100)
    operation.left = 0

    purgatory.notify("b")
    purgatory.notify("a")

    assert operation.events == ["complete"]
    assert clock.pending_timers == []
    assert purgatory.size == 0


def test_timeout_expires_then_completes_once() -> None:
    clock = ManualClock()
    purgatory = Purgatory(clock)
    operation = Countdown(1)
    purgatory.try_complete_else_watch(operation, ["a"], 100)

    clock.advance(99)
    assert operation.events == []
    clock.advance(1)
    purgatory.notify("a")

    assert operation.events == ["expire", "complete"]
    assert purgatory.expired_count == 1
    assert purgatory.size == 0


def test_cancelled_operation_is_never_answered() -> None:
    clock = ManualClock()
    purgatory = Purgatory(clock)
    operation = Countdown(1)
    purgatory.try_complete_else_watch(operation, ["a"], 100)

    purgatory.cancel(operation)
    purgatory.cancel(operation)
    operation.left = 0
    purgatory.notify("a")
    clock.advance(1000)

    assert operation.events == []
    assert purgatory.size == 0


def test_completion_that_notifies_the_same_key_completes_each_operation_once() -> None:
    """An answer may append: a coordinator's does, when what it answers allows the next step of its group."""
    purgatory = Purgatory(ManualClock())
    first, second = Countdown(1), Countdown(1)
    first.purgatory_to_notify = purgatory
    for operation in (first, second):
        purgatory.try_complete_else_watch(operation, ["a"], 100)
        operation.left = 0

    purgatory.notify("a")

    assert first.events == ["complete"]
    assert second.events == ["complete"]
    assert purgatory.size == 0


def test_an_answer_that_fails_harms_neither_the_others_nor_whoever_notified(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Countdown):
        def on_complete(self) -> None:
            raise ZeroDivisionError

    purgatory = Purgatory(ManualClock())
    failing, other = Failing(1), Countdown(1)
    for operation in (failing, other):
        purgatory.try_complete_else_watch(operation, ["a"], 100)
        operation.left = 0

    completed_count = purgatory.notify("a")

    assert completed_count == 2
    assert other.events == ["complete"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_an_answer_that_fails_at_once_fails_for_whoever_asked() -> None:
    class Failing(Countdown):
        def on_complete(self) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Purgatory(ManualClock()).try_complete_else_watch(Failing(0), ["a"], 100)
