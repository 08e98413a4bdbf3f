"""Partitions take over changed settings of their topics, a few in each turn of the loop: a broker's default is a setting of every topic."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.clock import Clock
from broker.loop_job import LoopJob

PARTITIONS_PER_TURN = 50
"""Partitions that take over their topics' settings in one turn, 20 µs each."""


class SettingsTakeover:
    """Topics whose settings changed. `take_over(topic)` has its partitions read them, and returns how many there are."""

    def __init__(self, clock: Clock, take_over: Callable[[str], int]) -> None:
        self._take_over = take_over
        self._topics: dict[str, None] = {}  # an ordered set
        self._job = LoopJob(clock, self._run_slice)

    def add(self, topics: Iterable[str]) -> None:
        """Take over now, as far as a turn allows, unless others are before them."""
        self._topics.update((topic, None) for topic in topics)
        if self._topics and not self._job.is_waiting and self._run_slice():
            self._job.resume()

    def stop(self) -> None:
        self._topics.clear()
        self._job.stop()

    def _run_slice(self) -> bool:
        """Take over a few; whether there are more."""
        left = PARTITIONS_PER_TURN
        while self._topics and left > 0:
            topic = next(iter(self._topics))
            del self._topics[topic]
            left -= max(self._take_over(topic), 1)
        return bool(self._topics)
