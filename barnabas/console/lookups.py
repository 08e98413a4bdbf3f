"""A schema registry as pages ask it: by a thread, one question at a time, so that a page waits WAIT_S at most, and others not at all.

A registry that does not answer is left alone for AGAIN_S, and so is an id that it refuses. Records can name whatever ids they like: after
FAILED_MAX refused ones no further id is asked for until the first of them is forgotten.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from barnabas.cli.errors import CommandError, NoBrokerError, RefusedError
from barnabas.cli.schemas.registry import Registry, Schema

WAIT_S = 2.0
AGAIN_S = 15.0
FAILED_MAX = 20


class Lookups:
    """Owns the questions that are open and what was refused; `registry` owns the schemas."""

    def __init__(self, registry: Registry, *, wait_s: float = WAIT_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._wait_s = wait_s
        self._clock = clock
        self._changed = threading.Condition()
        self._is_asking = False
        self._is_late = False
        """Somebody has waited long enough for the question that is open."""
        self._failed: dict[int, tuple[float, CommandError | None]] = {}
        """Until when, and why; None for an id that is not there."""
        self._away: tuple[float, CommandError] | None = None

    def get(self, number: int) -> Schema | None:
        """None if there is none of that id. Raises CommandError."""
        deadline_s = self._clock() + self._wait_s
        with self._changed:
            while True:
                known = self._registry.find(number)
                if known is not None:
                    return known
                if self._is_refused(number):
                    return None
                if not self._is_asking:
                    self._is_asking = True
                    threading.Thread(target=self._ask, args=(number,), name="schema registry", daemon=True).start()
                left_s = deadline_s - self._clock()
                if left_s <= 0 or self._is_late:
                    self._is_late = True
                    raise NoBrokerError("the schema registry has not answered yet")
                self._changed.wait(left_s)

    def newest(self, subject: str) -> Schema:
        raise RefusedError("the console writes by no schema")

    def _is_refused(self, number: int) -> bool:
        """Whether the registry has said that there is no such id. Raises CommandError for what else it said, or if it is left alone."""
        now_s = self._clock()
        if self._away is not None and now_s < self._away[0]:
            raise self._away[1]
        self._failed = {each: known for each, known in self._failed.items() if now_s < known[0]}
        if number in self._failed:
            error = self._failed[number][1]
            if error is not None:
                raise error
            return True
        if len(self._failed) >= FAILED_MAX:
            raise RefusedError(f"the schema registry has refused {FAILED_MAX} ids; it is asked for others in some seconds")
        return False

    def _ask(self, number: int) -> None:
        away: CommandError | None = None
        failed: tuple[CommandError | None] | None = (RefusedError(f"the schema registry's answer about {number} makes no sense"),)
        try:
            failed = (None,) if self._registry.get(number) is None else None
        except NoBrokerError as e:
            away, failed = e, None
        except CommandError as e:
            failed = (e,)
        finally:
            with self._changed:
                until_s = self._clock() + AGAIN_S
                self._away = None if away is None else (until_s, away)
                if failed is not None:
                    self._failed[number] = until_s, failed[0]
                self._is_asking = self._is_late = False
                self._changed.notify_all()
