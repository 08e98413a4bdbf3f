"""The faults of the sink's campaign: what is killed while a process is held at a point of the protocol, and what has to follow.

| fault | what happens to the held process and the others | what has to follow |
| --- | --- | --- |
| python | kill -9 of the held process | the query ends, Spark aborts the batch; a task is repeated where Spark is told to |
| twice | kill -9 of the held process, and of the one that aborts | the query ends as if the driver had been killed |
| executor | kill -9 of all executors, on a cluster | Spark starts others; the task is repeated where Spark is told to |
| driver | kill -9 of the driver, its JVM and all its workers | a new driver |
| zombie | the same, but the held process stays, and goes on when the new driver has committed a batch | nothing of it is seen |
| twin | Spark kills the held attempt at a task, and runs another | the query goes on |
| speculation | it stays, on a cluster, and Spark runs a twin beside it | the query goes on |
| stop | query.stop() while it is held; it goes on after a new start | nothing of it is seen |
| broker | kill -9 of the broker, which starts again | the query goes on |
| hang | SIGSTOP of the broker for a moment | the query goes on |

Attempts that have a twin go on when the batch is committed, or already when it is decided.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

PYTHON, TWICE, DRIVER, ZOMBIE, TWIN, STOP, BROKER, HANG = "python", "twice", "driver", "zombie", "twin", "stop", "broker", "hang"
KINDS = (PYTHON, TWICE, DRIVER, ZOMBIE, TWIN, STOP, BROKER, HANG)
EXECUTOR, SPECULATION = "executor", "speculation"
CLUSTER_KINDS = (*KINDS, EXECUTOR, SPECULATION)
"""Where executors are processes of their own, on hosts of their own."""
OF_A_COMMIT, OF_A_TASK, OF_A_FIRST_FAULT = (TWICE,), (EXECUTOR, SPECULATION), (ZOMBIE, TWIN)
OF_A_NEW_DRIVER = (DRIVER, ZOMBIE)
"""Each costs the start of a JVM."""

ALWAYS = (
    "plan:begin", "plan:generation", "plan:end",
    "task:begin", "task:opening", "task:opened", "task:written", "task:flushed", "task:end",
    "commit:begin", "commit:bound", "commit:deciding", "commit:decided", "commit:ended", "commit:finishing", "commit:finished",
    "commit:end",
)  # fmt: skip
"""The points that each batch passes."""
WEIGHTS = {
    "commit:decided": 3,
    "commit:ended": 3,
    "commit:deciding": 2,
    "commit:finishing": 2,
    "commit:end": 2,
    "task:flushed": 2,
    "task:opening": 2,
}
SKIPPED_MAX = {"task:begin": 2, "task:opening": 2, "task:opened": 2, "task:written": 5, "task:flushed": 2, "task:end": 2, "commit:ended": 1}
"""How many visitors of the point pass before one is held, at most: another task, or a later transaction."""
AFTER_A_DECISION = ("commit:decided", "commit:ended", "commit:finishing")
LEAVES_A_DECISION = (PYTHON, TWICE, DRIVER)
"""After the others the commit goes on: query.stop() waits for it."""
ONLY_AFTER_A_DECISION = ("plan:ended", "plan:adopted")
IN_ANY_PLAN = ("plan:begin", "plan:generation", "plan:end")
TWIN_POINTS = ("task:opening", "task:opened", "task:written")
SECOND_SHARE = 0.3
NEW_DRIVER_WEIGHT = 0.25


class Fault(NamedTuple):
    """`partitions` of the shuffle of the query's next start; `rows` are written before. `down_s`: how long the broker or the query is
    away. For an attempt that has a twin it is no time: unless it is 0, the attempt goes on when the batch is decided."""

    kind: str
    point: str
    skipped_count: int
    partitions: int
    down_s: float
    rows: int

    def __str__(self) -> str:
        return f"{self.kind} at {self.point}" + (f"+{self.skipped_count}" if self.skipped_count else "")


def random_faults(
    randomness: random.Random, count: int, *, kinds: Sequence[str] | None = None, points: Sequence[str] | None = None
) -> list[list[Fault]]:
    """`count` faults in rounds: the second one of a round hits the recovery from the first. `kinds` and `points` are the only ones then."""
    rounds: list[list[Fault]] = []
    left = count
    while left:
        first = _fault(randomness, _point(randomness, points or ALWAYS), kinds or KINDS)
        faults = [first]
        if left > 1 and first.kind in (PYTHON, TWICE, DRIVER, STOP) and randomness.random() < SECOND_SHARE:
            is_left = first.point in AFTER_A_DECISION and first.kind in LEAVES_A_DECISION
            certain = IN_ANY_PLAN + (ONLY_AFTER_A_DECISION if is_left else ())
            faults.append(_fault(randomness, randomness.choice(certain), kinds or KINDS, is_second=True))
        rounds.append(faults)
        left -= len(faults)
    return rounds


def _point(randomness: random.Random, points: Sequence[str]) -> str:
    return randomness.choices(points, [WEIGHTS.get(point, 1) for point in points])[0]


def _fault(randomness: random.Random, point: str, kinds: Sequence[str], *, is_second: bool = False) -> Fault:
    possible = [
        kind
        for kind in kinds
        if (kind not in OF_A_COMMIT or point.startswith("commit:"))
        and (kind != TWIN or point in TWIN_POINTS)
        and (kind not in OF_A_TASK or point.startswith("task:"))
        and (kind not in OF_A_FIRST_FAULT or not is_second)
    ] or [PYTHON]
    weights = [NEW_DRIVER_WEIGHT if kind in OF_A_NEW_DRIVER else 1.0 for kind in possible]
    return Fault(
        kind=randomness.choices(possible, weights)[0],
        point=point,
        skipped_count=0 if is_second else randomness.randint(0, SKIPPED_MAX.get(point, 0)),
        partitions=randomness.choice((0, 0, 1, 2, 3, 5)),
        down_s=randomness.choice((0.0, 0.0, 0.5, 1.5)),
        rows=randomness.randint(30, 200),
    )
