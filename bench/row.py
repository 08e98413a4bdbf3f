"""A row of the benchmark, and the figures that it yields, with their targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.session import Outcome, Session


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a row. `limit` is an absolute target, `kafka_factor` one relative to Apache Kafka in the same sitting (0.5: half of its
    figure). `recorded` is the figure of Apache Kafka 4.3.1, hot, on the machine where the targets were set: a hint when it is not
    measured too."""

    key: str
    title: str
    unit: str
    lower_is_better: bool = True
    limit: float | None = None
    kafka_factor: float | None = None
    recorded: float | None = None

    @property
    def is_cpu(self) -> bool:
        """Whether it is the CPU of a unit of work. On a busy machine that varies far less than elapsed time."""
        return "cpu_" in self.key and self.unit != "%"

    def is_met(self, value: float, kafka: float | None) -> bool | None:
        """Whether `value` reaches the target; None without one, or when it is relative and Kafka's figure is not known."""
        goals = [goal for goal in (self.limit, self._relative_goal(kafka)) if goal is not None]
        if not goals:
            return None
        return all(value <= goal if self.lower_is_better else value >= goal for goal in goals)

    def _relative_goal(self, kafka: float | None) -> float | None:
        return None if self.kafka_factor is None or kafka is None else self.kafka_factor * kafka

    @property
    def target(self) -> str:
        """The target as text: `≤ 60`, `≥ 1 × Kafka`, or nothing."""
        sign = "≤" if self.lower_is_better else "≥"
        parts = [] if self.limit is None else [f"{sign} {self.limit:,g}"]
        if self.kafka_factor is not None:
            parts.append(f"{sign} {self.kafka_factor:g} × Kafka")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Row:
    """`runs_max` bounds how often a long measurement is repeated; `writes_gb` is what one run adds to the page cache; `main_key` names the
    figure that the row is about where that is not the first. A row with `is_cluster` is given a session over three nodes."""

    name: str
    title: str
    measure: Callable[[Session], Outcome]
    figures: tuple[Figure, ...]
    is_core: bool = False
    runs_max: int = 100
    writes_gb: float = 0.0
    main_key: str = ""
    is_cluster: bool = False

    @property
    def judged(self) -> Figure:
        """The figure by which two commits are compared: the first CPU figure, else the main one."""
        main = next((figure for figure in self.figures if figure.key == self.main_key), self.figures[0])
        return next((figure for figure in self.figures if figure.is_cpu), main)


def rate_figure(
    key: str, title: str, unit: str, *, limit: float | None = None, kafka: float | None = None, recorded: float | None = None
) -> Figure:
    """A figure of which more is better. `kafka` is its `kafka_factor`."""
    return Figure(key, title, unit, lower_is_better=False, limit=limit, kafka_factor=kafka, recorded=recorded)
