"""Windows of faults on a cluster under load, each with a check at its end: nothing acked is lost, doubled or out of order.

A window: the clients work, faults strike and are healed, then everything is mended, the producers settle, and all that was written since
the last window is read and judged. The replicas must hold the same batches, the groups must reach the end. The same clients go on in the
next window. `check_all` at the end reads everything once more: what a window found must still be there.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka

from tests.faults.changes import CHANGES
from tests.faults.load import PARTITIONS, REQUESTS_IN_FLIGHT_MAX, SEGMENT_BYTES, TOPIC, Load, Operation, lost_commits, poll_operation
from tests.faults.nemesis import OF_NETWORK, OPERATIONS, Nemesis, Strike
from tests.faults.replicas import differences
from tests.support.cluster import Cluster
from tests.support.cluster_network import ClusterNetwork
from tests.support.history_checker import check, reads
from tests.support.power import PowerCutDisk

CALM_MAX_S = 2.0
HOLD_MAX_S = 3.0
ACK_TIMEOUT_S = 120.0
HEAL_TIMEOUT_S = 150.0
READ_TIMEOUT_S = 120.0
ADMIN_TIMEOUT_S = 60.0
READ_BATCH_SIZE = 5000
WAIT_INTERVAL_S = 0.02
DISTURBED_SHARE = 0.8  # of the changes
EVIDENCE_SHOWN = 3


@dataclass(slots=True)
class Window:
    """What one window showed. `anomalies` is empty if the cluster kept its promises."""

    number: int
    strikes: list[Strike]
    acked: int
    anomalies: dict[str, list[Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        found = ", ".join(f"{name} {len(evidence)}× {evidence[:EVIDENCE_SHOWN]}" for name, evidence in self.anomalies.items())
        return f"window {self.number}: {self.acked} acked; {'; '.join(map(str, self.strikes))}; anomalies: {found or 'none'}"


class ClusterCampaign:
    """Owns the clients of one run on a started cluster; `run_window` and `run_during` may be called any number of times, then `check_all`
    and `close`."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        seed: int,
        pause_s: float,
        has_java: bool,
        sends_per_second: int,
        topic_config: Mapping[str, str],
        requests_in_flight: int = REQUESTS_IN_FLIGHT_MAX,
        network: ClusterNetwork | None = None,
        disks: Mapping[int, PowerCutDisk] | None = None,
    ) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self.nemesis = Nemesis(cluster, TOPIC, seed=seed, pause_s=pause_s, network=network, disks=disks, side_config=topic_config)
        cluster.create_topic(TOPIC, PARTITIONS, config={"segment.bytes": str(SEGMENT_BYTES), **topic_config})
        self.load = Load(cluster.bootstrap, has_java=has_java, sends_per_second=sends_per_second, requests_in_flight=requests_in_flight)
        self.windows: list[Window] = []
        self._undrawn: list[str] = []
        self._ends = dict.fromkeys(range(PARTITIONS), 0)
        self._digests: list[tuple[dict[int, int], str]] = []

    def run_window(self, kinds: Sequence[str], *, seconds: float) -> Window:
        """Faults drawn from `kinds` for so long, at least one, then the check. Raises AssertionError when nothing goes on."""

        def strike_often() -> list[Strike]:
            strikes: list[Strike] = []
            end_s = time.monotonic() + seconds
            while not strikes or time.monotonic() < end_s:
                time.sleep(self._random.uniform(0, CALM_MAX_S))
                kind = self._draw(kinds)
                strikes += self._run_change(kind, kinds) if kind in CHANGES else [self._run_fault(kind)]
            return strikes

        return self.run_during(strike_often)

    def _draw(self, kinds: Sequence[str]) -> str:
        """One of `kinds`: each has come once before any comes again."""
        if not self._undrawn:
            self._undrawn = self._random.sample(kinds, len(kinds))
        return self._undrawn.pop()

    def run_during(self, work: Callable[[], list[Strike]]) -> Window:
        """The clients work while `work` does something to the cluster; then the check."""
        number = len(self.windows) + 1
        self.load.resume()
        strikes = work()
        self._wait_until_healed()
        unanswered = self.load.settle()
        anomalies: dict[str, list[Any]] = {"unanswered-sends": unanswered} if unanswered else {}
        acked = self.load.history.acked_count
        anomalies |= self._check_window(number)
        self.windows.append(Window(number, strikes, acked, anomalies))
        return self.windows[-1]

    def check_all(self) -> dict[str, list[Any]]:
        """Every record that a window read is still there, unchanged."""
        start = dict.fromkeys(range(PARTITIONS), 0)
        everything = reads(self._read(start, self._ends, "all"))
        changed = []
        for number, (ends, digest) in enumerate(self._digests, start=1):
            part = {key: [each for each in everything[key] if start[key] <= each[0] < ends[key]] for key in start}
            if _digest(part) != digest:
                changed.append(f"window {number}")
            start = ends
        return {"rewritten-log": changed} if changed else {}

    def close(self) -> None:
        self.load.close()

    # -- a fault ----------------------------------------------------------------------------------------------------

    def _run_fault(self, kind: str) -> Strike:
        """Strike, wait for acks of every partition from those who are left, hold, heal. Sometimes heals before anybody noticed."""
        strike = self.nemesis.strike(kind, lambda: len(self.load.history.sends))
        is_short = self._random.random() < 0.25
        if strike.leaves_majority and not is_short:
            self._wait_for_acks(strike)
        is_silent = kind.startswith(("pause", "silence", *OF_NETWORK))  # nobody is told: what follows, follows from timeouts
        time.sleep(self.nemesis.pause_s if is_silent and not is_short else self._random.uniform(0, HOLD_MAX_S))
        self.nemesis.heal(strike)
        if not strike.ack_after_s:
            self._wait_for_acks(strike)
        if self._random.random() < 0.75:
            self._wait_until_healed()
        print(f"  {strike}", flush=True)
        return strike

    def _run_change(self, kind: str, kinds: Sequence[str]) -> list[Strike]:
        """A change of the cluster, during which a fault may strike; it has to come to its end when that is healed."""
        change = self.nemesis.strike(kind, lambda: len(self.load.history.sends))
        faults = [each for each in kinds if each not in (*CHANGES, *OPERATIONS)]
        disturbance = [self._run_fault(self._random.choice(faults))] if faults and self._random.random() < DISTURBED_SHARE else []
        self.nemesis.heal(change)
        self._wait_for_acks(change)
        print(f"  {change}", flush=True)
        return [change, *disturbance]

    def _wait_for_acks(self, strike: Strike) -> None:
        """Wait until a record that was sent after the strike is acked in each partition, and remember how long that took."""
        sends, position = self.load.history.sends, strike.first_send
        deadline_s = time.monotonic() + ACK_TIMEOUT_S
        while len(strike.ack_after_s) < PARTITIONS:
            for send in sends[position:]:
                position += 1
                partition = send["m"][0][1]
                if send["t"] == "ok" and send["inv"] > strike.struck_ns:
                    strike.ack_after_s.setdefault(partition, (send["ret"] - strike.struck_ns) / 1e9)
            if time.monotonic() > deadline_s:
                missing = sorted(set(range(PARTITIONS)) - set(strike.ack_after_s))
                raise AssertionError(f"no acks in partitions {missing} {ACK_TIMEOUT_S} s after {strike}\n{self._situation()}")
            time.sleep(WAIT_INTERVAL_S)

    def _wait_until_healed(self) -> None:
        self._cluster.wait_in_sync(timeout_s=HEAL_TIMEOUT_S)

    # -- the check --------------------------------------------------------------------------------------------------

    def _check_window(self, number: int) -> dict[str, list[Any]]:
        """Judge what was written since the last window, and begin the next history."""
        start, commits = self._ends, self.load.committed()
        ends = self._end_offsets()
        final_read = self._read(start, ends, str(number))
        history = self.load.history
        anomalies: dict[str, list[Any]] = check([_since(start, operation) for operation in history.operations(final_read)])
        if history.errors:
            anomalies["failed-send"] = list(history.errors)
        log: dict[int, list[tuple[int, str]]] = final_read["m"][0][1]
        for partition, positions in log.items():
            if [offset for offset, _ in positions] != list(range(start[partition], ends[partition])):
                anomalies.setdefault("offset-gap", []).append(partition)
        if unequal := differences(self._cluster, TOPIC, ends):
            anomalies["unequal-replicas"] = unequal
        if lost := lost_commits(self._cluster.bootstrap, commits, ADMIN_TIMEOUT_S):
            anomalies["commit-lost"] = lost
        if behind := self._group_behind(ends):
            anomalies["group-stuck"] = behind
        for topic in self.nemesis.side_topics:
            anomalies |= topic.check()
        self._digests.append((ends, _digest(log)))
        self._ends = ends
        history.sends, history.polls, history.errors = [], [], []
        return anomalies

    def _end_offsets(self) -> dict[int, int]:
        """The high watermarks, once they are beyond what was acked: a new leader's is behind until its followers have fetched. Where they
        do not get there in time, the check says what is lost."""
        acked = self.load.history.acked_ends()
        deadline_s = time.monotonic() + HEAL_TIMEOUT_S
        with _reader(self._cluster) as consumer:
            partitions = [confluent_kafka.TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
            while True:
                ends = {each.partition: consumer.get_watermark_offsets(each, timeout=ADMIN_TIMEOUT_S)[1] for each in partitions}
                if all(ends[partition] >= end for partition, end in acked.items()) or time.monotonic() > deadline_s:
                    return ends
                time.sleep(WAIT_INTERVAL_S)

    def _read(self, start: Mapping[int, int], ends: Mapping[int, int], name: str) -> Operation:
        """All records between these offsets, read by one consumer without a group."""
        count = sum(ends[partition] - start[partition] for partition in ends)
        messages: list[Any] = []
        with _reader(self._cluster) as consumer:
            consumer.assign([confluent_kafka.TopicPartition(TOPIC, partition, offset) for partition, offset in start.items()])
            deadline_s = time.monotonic() + READ_TIMEOUT_S
            while len(messages) < count and time.monotonic() < deadline_s:
                polled = consumer.consume(min(READ_BATCH_SIZE, count - len(messages)), timeout=0.5)
                messages += [message for message in polled if message.error() is None]
        assert len(messages) == count, f"read {len(messages)} of {count} records in {READ_TIMEOUT_S} s\n{self._situation()}"
        return poll_operation(f"reader-{name}", messages, in_group=False)

    def _group_behind(self, ends: Mapping[int, int]) -> list[Any]:
        """Groups and partitions whose end the group does not reach in time, with what it has reached."""
        deadline_s, wanted = time.monotonic() + HEAL_TIMEOUT_S, self.load.all_committed(ends)
        while (reached := self.load.committed()) != wanted:
            if time.monotonic() > deadline_s:
                return [(*key, reached.get(key), end) for key, end in wanted.items() if reached.get(key) != end]
            time.sleep(WAIT_INTERVAL_S)
        return []

    def _situation(self) -> str:
        return f"running: {self._cluster.running}\n{self._cluster.log_tails()}"


@contextmanager
def _reader(cluster: Cluster) -> Iterator[confluent_kafka.Consumer]:
    """A consumer that joins no group."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "reader", "enable.auto.commit": False, "check.crcs": True, "log_level": 0}
    )
    try:
        yield consumer
    finally:
        consumer.close()


def _since(start: Mapping[int, int], operation: Operation) -> Operation:
    """A group's poll without what earlier windows have judged: after a rebalance a member may read that again."""
    if operation["f"] != "poll":
        return operation
    polled = {key: [each for each in positions if each[0] >= start[key]] for key, positions in operation["m"][0][1].items()}
    return {**operation, "m": [("poll", polled)]}


def _digest(log: Mapping[int, Sequence[tuple[int, str]]]) -> str:
    return hashlib.sha256(repr(sorted((key, list(positions)) for key, positions in log.items() if positions)).encode()).hexdigest()
