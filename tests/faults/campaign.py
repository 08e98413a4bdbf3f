"""Rounds of crash and restart under load, and the check after each: nothing acked is lost, doubled or out of order.

A round: start, wait until it serves, let the clients work for a random time, crash, start again on the same data, wait
until enough sends are acked, stop the producers, read everything, check the whole history. How to crash is the
caller's: kill -9 (crash.py) or a power cut (power_cut.py).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.load import PARTITIONS, SEGMENT_BYTES, TOPIC, Load, Operation, lost_commits, poll_operation
from tests.support.history_checker import check
from tests.support.process import ServerProcess

LIFE_MIN_S, LIFE_MAX_S = 0.2, 3.0
ACKED_PER_ROUND_MIN = 1000
ADMIN_TIMEOUT_S = 60.0
PROGRESS_TIMEOUT_S = 120.0
READ_TIMEOUT_S = 120.0
READ_BATCH_SIZE = 5000
WAIT_INTERVAL_S = 0.02
EVIDENCE_SHOWN = 3


@dataclass(slots=True)
class Round:
    """What one round showed. `anomalies` is empty when the server kept its promises."""

    number: int
    life_s: float
    ready_after_s: float
    acked: int
    anomalies: dict[str, list[Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        found = ", ".join(f"{name} {len(evidence)}× {evidence[:EVIDENCE_SHOWN]}" for name, evidence in self.anomalies.items())
        return (
            f"round {self.number}: crashed {self.life_s:.2f} s after ready, ready again after {self.ready_after_s:.2f} s, "
            f"{self.acked} acked, anomalies: {found or 'none'}"
        )


class Campaign:
    """Owns the server and the clients of one run; `run_round` may be called any number of times, then `close`."""

    def __init__(
        self,
        server: ServerProcess,
        crash: Callable[[], None],
        *,
        seed: int,
        topic_config: Mapping[str, str] | None = None,
    ) -> None:
        self._server = server
        self._crash = crash
        self._random = random.Random(seed)
        self._log: dict[int, list[tuple[int, str]]] = {}
        self._rounds = 0
        server.start()
        self._create_topic({"segment.bytes": str(SEGMENT_BYTES), **(topic_config or {})})
        self.load = Load(server.bootstrap)

    def run_round(self) -> Round:
        """One crash with its check. Raises when the server does not come back or makes no progress."""
        self._rounds += 1
        acked_before = self.load.history.acked_count
        if not self._server.is_running:
            self._server.start()
        self.load.resume()
        life_s = self._random.uniform(LIFE_MIN_S, LIFE_MAX_S)
        time.sleep(life_s)
        self._crash()
        commits_acked = self.load.committed()
        self._server.start()
        ready_after_s = self._server.ready_after_s
        lost = lost_commits(self._server.bootstrap, commits_acked, ADMIN_TIMEOUT_S)
        anomalies: dict[str, list[Any]] = {"commit-lost": lost} if lost else {}
        self._wait_until(lambda: self.load.history.acked_count - acked_before >= ACKED_PER_ROUND_MIN, "enough acked sends")
        unanswered = self.load.settle()
        if unanswered:
            anomalies["unanswered-sends"] = unanswered
        anomalies |= self._check_history()
        acked = self.load.history.acked_count - acked_before
        self._crash()
        return Round(self._rounds, life_s, ready_after_s, acked, anomalies)

    def check_group_reaches_end(self) -> None:
        """Each group reads and commits all that was written, once the crashes are over. Raises when one stays behind."""
        if not self._server.is_running:
            self._server.start()
        ends = {partition: len(positions) for partition, positions in self._log.items()}
        wanted = self.load.all_committed(ends)
        self._wait_until(lambda: self.load.committed() == wanted, f"the groups' commits to reach {ends}")

    def close(self) -> None:
        try:
            if not self._server.is_running:
                self._server.start()
        finally:
            self.load.close()
        self._server.stop()

    def _create_topic(self, config: Mapping[str, str]) -> None:
        admin = AdminClient({"bootstrap.servers": self._server.bootstrap})
        topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1, config=dict(config))
        admin.create_topics([topic])[TOPIC].result(ADMIN_TIMEOUT_S)

    def _check_history(self) -> dict[str, list[Any]]:
        final_read = self._read_everything()
        history = self.load.history
        anomalies = check(history.operations(final_read), subscribe=False)
        log: dict[int, list[tuple[int, str]]] = final_read["m"][0][1]
        if history.errors:
            anomalies["failed-send"] = list(history.errors)
        for partition, positions in log.items():
            before = self._log.get(partition, [])
            if positions[: len(before)] != before:
                anomalies.setdefault("rewritten-log", []).append(partition)
            if [offset for offset, _ in positions] != list(range(len(positions))):
                anomalies.setdefault("offset-gap", []).append(partition)
        self._log = log
        return anomalies

    def _read_everything(self) -> Operation:
        """All partitions from their beginning to their end, read by one consumer without a group."""
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._server.bootstrap, "group.id": "reader", "enable.auto.commit": False, "check.crcs": True}
        )
        try:
            start = [confluent_kafka.TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)]
            count = sum(consumer.get_watermark_offsets(partition, timeout=ADMIN_TIMEOUT_S)[1] for partition in start)
            consumer.assign(start)
            messages: list[Any] = []
            deadline = time.monotonic() + READ_TIMEOUT_S
            while len(messages) < count and time.monotonic() < deadline:
                polled = consumer.consume(min(READ_BATCH_SIZE, count - len(messages)), timeout=0.5)
                messages += [message for message in polled if message.error() is None]
        finally:
            consumer.close()
        assert len(messages) == count, f"read {len(messages)} of {count} records in {READ_TIMEOUT_S} s"
        return poll_operation(f"reader-{self._rounds}", messages, in_group=False)

    def _wait_until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PROGRESS_TIMEOUT_S
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {PROGRESS_TIMEOUT_S} s for {what}\n{self._server.log_tail()}")
            time.sleep(WAIT_INTERVAL_S)
