"""Where the time of one replicated produce goes: a leader and two followers in this process, without sockets.

The brokers are those of `tests/broker/replication/cluster.py`: dispatch, handlers, fetchers, logs. Between them is a list of messages
instead of the loop and its connections. The numbers of calls of Python functions are the same in each run, even on a busy machine.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from bench.clients.raw_produce import produce_request
from broker.loop.deferred import Deferred
from broker.network.context import ConnectionFacts, ListenerFacts
from protocol.records import SimpleRecord, build_batch
from tests.broker.replication.cluster import Cluster, Message
from tests.support.clock import WALL_START_MS

WARMUP, PRODUCES = 500, 3_000
RECORD_SIZE = 100
QUICK_SHARE = 0.1  # of the times: the slower ones depend on the machine's other work
PRODUCE = "leader: append, answer both fetches, park the produce"
FIRST_FETCH, SECOND_FETCH = "leader: the first follower's next fetch", "leader: the second one's, and the answer to the produce"
FOLLOW = "follower (each): append what was fetched, next fetch"
STEPS = (PRODUCE, FOLLOW, FIRST_FETCH, SECOND_FETCH)


class ReplicatedProduce:
    """A topic of one partition with three replicas, and the steps of a produce to it. `note` is called after each."""

    def __init__(self, directory: Path) -> None:
        self._cluster = Cluster(directory)
        self._cluster.create_topic("t")
        self._cluster.settle()
        self._leader = self._cluster.leader("t")
        self._facts = ConnectionFacts(1, ListenerFacts("PLAINTEXT"), "127.0.0.1")
        batch = bytes(build_batch([SimpleRecord(None, b"x" * RECORD_SIZE, timestamp=WALL_START_MS)]))
        self._frame = bytes(produce_request("t", 1, acks=-1, records=batch))[4:]

    def run(self, measure: Callable[[str, Callable[[], Any]], Any]) -> None:
        """One produce, each of its steps run by `measure`."""
        frame, answers, fetches = memoryview(bytearray(self._frame)), [], 0
        outcome = measure(PRODUCE, lambda: self._leader.apis.handle(frame, self._facts))
        assert isinstance(outcome, Deferred)
        outcome.when_done(answers.append)
        messages: list[Message] = self._cluster.messages
        while messages:
            message = messages.pop(0)
            fetches += message.is_request
            measure(FOLLOW if not message.is_request else FIRST_FETCH if fetches == 1 else SECOND_FETCH, message.arrive)
        assert answers, "the produce was acknowledged"


def steps() -> list[tuple[str, float, int]]:
    """Each step's microseconds and calls of Python functions. A follower's step counts for one of the two."""
    times: dict[str, list[int]] = defaultdict(list)

    def timed(step: str, call: Callable[[], Any]) -> Any:
        started_ns = perf_counter_ns()
        outcome = call()
        times[step].append(perf_counter_ns() - started_ns)
        return outcome

    with tempfile.TemporaryDirectory(prefix="barnabas-anatomy-") as folder:
        produce = ReplicatedProduce(Path(folder))
        for _ in range(WARMUP):
            produce.run(lambda _, call: call())
        gc.collect()
        gc.disable()
        try:
            for _ in range(PRODUCES):
                produce.run(timed)
        finally:
            gc.enable()
        calls = _count_calls(produce)
    return [(step, sorted(times[step])[int(len(times[step]) * QUICK_SHARE)] / 1e3, calls[step]) for step in STEPS]


def _count_calls(produce: ReplicatedProduce) -> dict[str, int]:
    calls: dict[str, int] = {}

    def counted(step: str, call: Callable[[], Any]) -> Any:
        count = 0

        def note(_frame: Any, event: str, _argument: Any) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(note)
        try:
            return call()
        finally:
            sys.setprofile(None)
            calls[step] = count

    produce.run(counted)
    return calls


def table() -> str:
    """The steps as text, and their sum: a produce has two followers."""
    found = steps()
    lines = ["one replicated produce: acks=all, three replicas, a batch of one record of 100 bytes", ""]
    lines += ["| step | µs | Python calls |", "| --- | --- | --- |"]
    lines += [f"| {name} | {us:.1f} | {calls} |" for name, us, calls in found]
    weights = [2 if name == FOLLOW else 1 for name, _, _ in found]
    total_us = sum(us * weight for (_, us, _), weight in zip(found, weights, strict=True))
    total_calls = sum(calls * weight for (_, _, calls), weight in zip(found, weights, strict=True))
    return "\n".join([*lines, f"| all, with two followers | {total_us:.1f} | {total_calls} |"])
