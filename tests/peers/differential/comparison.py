"""The same random steps to Apache Kafka and to Barnabas: every answer, every description and the log at the end are compared.

Both brokers are started once. Each seed is played in a namespace of its own, step by step on both, until something differs that is not
in differences.py. Such a seed is minimised: played again and again without some of its steps, as long as something differs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.peers.differential.differences import DIFFERENCES, Difference, Explained, explain
from tests.peers.differential.exchange import Exchange, Part
from tests.peers.differential.fuzzer import Fuzzer, Session, Step
from tests.peers.differential.minimiser import minimised
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.process import ServerProcess

DESCRIPTION_WAIT_S = 3.0
"""How long descriptions may differ: Kafka takes some changes over after it has answered."""
MINIMISING_WAIT_S = 0.3
"""The same while a failing seed is minimised: what has not come by then is taken for the difference."""
DESCRIPTION_INTERVAL_S = 0.02
RELEASE = ("--release-version", "4.0")
"""What Kafka's directory is formatted with: the features' levels of a new cluster here, so without eligible leader replicas."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Both brokers, running."""

    kafka: KafkaServer
    barnabas: ServerProcess


@contextmanager
def both_brokers(root: Path, settings: Mapping[str, str]) -> Iterator[Pair]:
    """Both brokers with the same settings, each with an empty directory below `root`."""
    kafka_jars()
    pair = Pair(KafkaServer(root / "kafka", settings), BrokerProcess(root / "barnabas", {**settings, "node.id": "1"}))
    pair.kafka.format_arguments = RELEASE
    try:
        pair.kafka.launch()
        pair.barnabas.start()
        pair.kafka.wait_ready()
        yield pair
    finally:
        for server in (pair.kafka, pair.barnabas):
            if server.is_running:
                server.kill()


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed that shows a difference: the steps up to it, the last with what differs."""

    fuzzer: str
    seed: int
    steps: Sequence[Step]
    exchange: Exchange
    unknown: Mapping[str, tuple[Any, Any]]
    """What differs and is not explained, theirs and ours by where it stands."""

    def __str__(self) -> str:
        lines = [f"{self.fuzzer}, seed {self.seed}: {self.exchange.part.value} differs after these steps"]
        lines += [f"  {number}. {step!r}" for number, step in enumerate(self.steps, 1)]
        return "\n".join(lines + [f"    {line}" for line in self.differing()])

    def differing(self) -> list[str]:
        return [f"{path or 'all'}: Kafka {theirs!r}, ours {ours!r}" for path, (theirs, ours) in self.unknown.items()]


class Comparison:
    """Of one fuzzer on a pair of brokers. `met` counts the reasons of differences that were met on purpose."""

    def __init__(self, fuzzer: Fuzzer, pair: Pair, *, session_prefix: str = "") -> None:
        self._fuzzer = fuzzer
        self._pair = pair
        self._prefix = session_prefix or fuzzer.name
        self._differences: Sequence[Difference] = DIFFERENCES.get(fuzzer.name, ())
        self._session_count = 0
        self.met: Counter[str] = Counter()

    def check(self, seed: int, *, is_minimised: bool = True) -> Failure | None:
        """What differs by the steps of the seed, with as few of them as show something; None where all is the same."""
        steps = self._fuzzer.steps(seed)
        failure = self.play(steps, seed)
        if failure is None or not is_minimised:
            return failure
        found = failure

        def is_failing(shorter: Sequence[Step]) -> bool:
            nonlocal found
            again = self.play(shorter, seed, description_wait_s=MINIMISING_WAIT_S)
            found = again or found
            return again is not None

        minimised(failure.steps, is_failing)
        return found

    def play(self, steps: Sequence[Step], seed: int, *, description_wait_s: float = DESCRIPTION_WAIT_S) -> Failure | None:
        """Play the steps once, in new sessions."""
        self._session_count += 1
        namespace = f"{self._prefix}-{seed}-{self._session_count}"
        with (
            closing(self._fuzzer.begin(self._pair.kafka, namespace)) as theirs,
            closing(self._fuzzer.begin(self._pair.barnabas, namespace)) as ours,
        ):
            exchange: Exchange | None = None
            for number, step in enumerate(steps, 1):
                for exchange in self._exchanges(step, theirs, ours, description_wait_s):
                    if exchange.is_same:
                        continue
                    explained = self._explain(exchange)
                    if explained.unknown:
                        return Failure(self._fuzzer.name, seed, steps[:number], exchange, explained.unknown)
                    self.met.update({difference.reason for difference in explained.known})
                    if any(difference.is_end for difference in explained.known):
                        return None
            if exchange is None:
                return None
            logs = Exchange(exchange.step, Part.LOG, theirs.log(), ours.log())
            explained = self._explain(logs)
            self.met.update({difference.reason for difference in explained.known})
            return Failure(self._fuzzer.name, seed, steps, logs, explained.unknown) if explained.unknown else None

    def _exchanges(self, step: Step, theirs: Session, ours: Session, wait_s: float) -> Iterator[Exchange]:
        """The answers, then the descriptions."""
        yield Exchange(step, Part.ANSWER, theirs.run(step), ours.run(step))
        described = Exchange(step, Part.DESCRIPTION, theirs.describe(), ours.describe())
        deadline_s = time.monotonic() + wait_s
        while self._explain(described).unknown and time.monotonic() < deadline_s:
            time.sleep(DESCRIPTION_INTERVAL_S)
            described = Exchange(step, Part.DESCRIPTION, theirs.describe(), ours.describe())
        yield described

    def _explain(self, exchange: Exchange) -> Explained:
        return explain(exchange, self._differences)
