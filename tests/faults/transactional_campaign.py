"""Windows of faults while transactional clients copy topics, each with a check at its end: what was committed is there once and in order,
and nothing of what was aborted.

A window: the clients work, faults strike and are healed, the source stops, the copiers reach its end. Then all that was written since the
last window is read with read_committed and judged: by the history, and by comparing each pipeline's output with its input. The clients go
on in the next window.
"""

from __future__ import annotations

import functools
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka

from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.faults.load import SEGMENT_BYTES, Operation
from tests.faults.nemesis import Nemesis, Strike
from tests.faults.replicas import differences
from tests.faults.transactional_load import INPUT, PARTITIONS, TRANSACTION_TIMEOUT_MS, Pipeline, TransactionLoad
from tests.support.cluster import Cluster
from tests.support.commits import commit
from tests.support.history_checker import check

KILL_CLIENT, PAUSE_CLIENT = "kill-client", "pause-client"
KILL_COORDINATOR, KILL_GROUP_COORDINATOR = "kill-coordinator", "kill-group-coordinator"
GROUP, TRANSACTION = 0, 1  # types of keys in FindCoordinator
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST = -1
CALM_MAX_S = 2.0
HOLD_MAX_S = 3.0
SHORT_SHARE = 0.25  # of the faults, which are healed before anyone noticed
IN_SYNC_SHARE = 0.75  # of the faults of a window; the next one strikes while replicas are behind
BUSY_MAX_S = 2.0  # that a client is waited for to be in a transaction when it is struck
SETTLE_TIMEOUT_S = 180.0
ADMIN_TIMEOUT_S = 60.0
WAIT_INTERVAL_S = 0.05
READ_BATCH_SIZE = 5000
EVIDENCE_SHOWN = 3
Log = dict[str, list[tuple[int, str]]]
"""Offsets and values of each partition, by "topic-partition"."""


@dataclass(slots=True)
class Window:
    """What one window showed. `anomalies` is empty if the cluster kept its promises."""

    number: int
    strikes: list[Strike]
    outcomes: Counter[str]
    copied: int
    """Records that a pipeline copied, of all pipelines."""
    commit_after_s: list[float]
    """For each strike and each topic: the time to the first commit of a transaction that began after it."""
    anomalies: dict[str, list[Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        found = ", ".join(f"{name} {len(evidence)}× {evidence[:EVIDENCE_SHOWN]}" for name, evidence in self.anomalies.items())
        ends = ", ".join(f"{self.outcomes[name]} {word}" for name, word in (("ok", "committed"), ("fail", "aborted"), ("info", "unknown")))
        after = f", next commit after {max(self.commit_after_s):.1f} s at most" if self.commit_after_s else ""
        return f"window {self.number}: {ends}, {self.copied} copied{after}; anomalies: {found or 'none'}"


class TransactionalCampaign:
    """Owns the clients of one run on a started cluster; `run_window` and `run_during` may be called any number of times, then `check_all`
    and `close`."""

    def __init__(
        self,
        cluster: Cluster,
        pipelines: Sequence[Pipeline],
        *,
        seed: int,
        pause_s: float,
        assignment: Sequence[Sequence[int]] = (),
        client_debug: str = "",
        timeout_ms: int = TRANSACTION_TIMEOUT_MS,
    ) -> None:
        """`assignment`: the brokers of each partition of all topics, else the controller places them."""
        self._cluster = cluster
        self._random = random.Random(seed)
        self._pause_s = pause_s
        self.pipelines = pipelines
        self._topics = (INPUT, *(pipeline.output for pipeline in pipelines))
        for topic in self._topics:
            cluster.create_topic(topic, PARTITIONS, assignment=assignment, config={"segment.bytes": str(SEGMENT_BYTES)})
        for pipeline in pipelines:
            if pipeline.role == "aiokafka":
                self._commit_beginning(pipeline)
        self._nemesis = Nemesis(cluster, INPUT, seed=seed, pause_s=pause_s)
        logs = cluster.directory / "clients"
        self.load = TransactionLoad(cluster.bootstrap, pipelines, logs, debug=client_debug, timeout_ms=timeout_ms)
        self.windows: list[Window] = []
        self._everything: Log = {}
        self._starts = dict.fromkeys(keys_of(*self._topics), 0)

    def close(self) -> None:
        self.load.close()

    def _commit_beginning(self, pipeline: Pipeline) -> None:
        """For a client that does not begin at the beginning by itself."""
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._cluster.bootstrap, "group.id": pipeline.group, "log_level": 0})
        beginning = [confluent_kafka.TopicPartition(pipeline.input, index, 0) for index in range(PARTITIONS)]
        commit(consumer, beginning, ADMIN_TIMEOUT_S)
        consumer.close()

    def coordinator(self, key_type: int, key: str) -> int:
        """The node that coordinates a group or a transactional id. Waits until there is one."""
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        return self._cluster.wait_for(lambda: max(self._cluster.ask(request, 4).coordinators[0].node_id, 0), f"a coordinator of {key}")

    # -- a window ---------------------------------------------------------------------------------------------------

    def run_window(self, kinds: Sequence[str], *, seconds: float) -> Window:
        """Faults drawn from `kinds` for so long, at least one, then the check. Raises AssertionError when nothing goes on."""

        def strike_often() -> list[Strike]:
            strikes: list[Strike] = []
            end_s = time.monotonic() + seconds
            while not strikes or time.monotonic() < end_s:
                time.sleep(self._random.uniform(0, CALM_MAX_S))
                strikes.append(self.run_fault(self._random.choice(kinds), in_sync=self._random.random() < IN_SYNC_SHARE))
            return strikes

        return self.run_during(strike_often)

    def run_during(self, work: Callable[[], list[Strike]]) -> Window:
        """The clients work while `work` does something to the cluster; then the check."""
        self.load.resume()
        assert self._wait_for(self._all_commit), f"no commits of all: {self.load.history.client_errors}\n{self._cluster.log_tails()}"
        strikes = work()
        self._cluster.wait_in_sync()
        anomalies: dict[str, list[Any]] = {}
        if not self.load.pause(SETTLE_TIMEOUT_S):
            anomalies["source-stuck"] = [dict(self.load.history.client_errors)]
        log, stuck = self._read_all()
        anomalies |= stuck
        if not self._wait_for(lambda: all(client.is_idle for client in self.load.clients.values())):
            anomalies["transaction-without-end"] = [name for name, client in self.load.clients.items() if not client.is_idle]
        operations, reads = self.load.take()
        anomalies |= judge(self.pipelines, operations, reads, log)
        copied = sum(len(log[key]) for pipeline in self.pipelines for key in keys_of(pipeline.output))
        outcomes = Counter(operation["t"] for operation in operations)
        window = Window(len(self.windows) + 1, strikes, outcomes, copied, commit_times_s(strikes, operations), anomalies)
        self.windows.append(window)
        return window

    def check_all(self) -> dict[str, list[Any]]:
        """What each window read is still there, and the replicas are equal."""
        starts, wanted, self._starts = self._starts, self._everything, dict.fromkeys(self._starts, 0)
        anomalies: dict[str, list[Any]] = {}
        for topic in self._topics:
            found = self._read(topic, self._ends(topic, READ_COMMITTED))
            anomalies |= {f"rewritten-log of {key}": [len(log)] for key, log in found.items() if log != wanted.get(key, [])}
            ends = {index: starts[key] for index, key in enumerate(keys_of(topic))}
            if unequal := differences(self._cluster, topic, ends):
                anomalies[f"unequal-replicas of {topic}"] = unequal
        return anomalies

    def _all_commit(self) -> bool:
        """Whether a copier of each pipeline has committed a transaction in this window, as far as they tell."""
        committed = {operation["p"] for operation in list(self.load.history.operations) if operation["t"] == "ok"}
        return all(any(name.startswith(pipeline.name) for name in committed) for pipeline in self.pipelines if pipeline.marks)

    # -- a fault ----------------------------------------------------------------------------------------------------

    def run_fault(self, kind: str, *, in_sync: bool = True) -> Strike:
        """Strike, hold, heal; sometimes before anyone noticed. `in_sync`: wait until all replicas are in sync again."""
        is_short = self._random.random() < SHORT_SHARE
        hold_s = self._pause_s if kind.startswith("pause") and not is_short else self._random.uniform(0, HOLD_MAX_S)
        strike = self._strike(kind)
        time.sleep(hold_s)
        self._heal(strike)
        if in_sync:
            self._cluster.wait_in_sync()
        print(f"  {strike}", flush=True)
        return strike

    def _strike(self, kind: str) -> Strike:
        if kind in (KILL_CLIENT, PAUSE_CLIENT):
            client = self.load.clients[self._random.choice(sorted(self.load.clients))]
            busy_s = time.monotonic() + BUSY_MAX_S
            while client.is_idle and time.monotonic() < busy_s:
                time.sleep(WAIT_INTERVAL_S / 10)
            strike = Strike(f"{kind} {client.name}", (), time.monotonic_ns(), [], 0)
            if kind == KILL_CLIENT:
                client.kill()
            else:
                client.freeze()
            return strike
        if kind in (KILL_COORDINATOR, KILL_GROUP_COORDINATOR):
            pipeline = self._random.choice(self.pipelines)
            key = (TRANSACTION, f"{pipeline.name}-0") if kind == KILL_COORDINATOR else (GROUP, pipeline.group)
            node_id = self.coordinator(*key)
            strike = Strike(kind, (node_id,), time.monotonic_ns(), [], 0)
            self._cluster.kill(node_id)
            return strike
        return self._nemesis.strike(kind, lambda: 0)

    def _heal(self, strike: Strike) -> None:
        strike.healed_ns = time.monotonic_ns()
        kind, _, name = strike.kind.partition(" ")
        if kind == PAUSE_CLIENT:
            self.load.clients[name].thaw()
        elif kind in (KILL_COORDINATOR, KILL_GROUP_COORDINATOR):
            self._cluster.start(*strike.nodes)
        elif kind != KILL_CLIENT:
            self._nemesis.heal(strike)

    # -- the check --------------------------------------------------------------------------------------------------

    def _read_all(self) -> tuple[Log, dict[str, list[Any]]]:
        """What was committed since the last window, once every transaction has ended and every group has read its input."""
        log: Log = {}
        stuck: dict[str, list[Any]] = {}
        ends: dict[str, int] = {}
        for topic in self._topics:
            for pipeline in self.pipelines:
                if pipeline.output == topic and not self._wait_for(functools.partial(self._has_read_all, pipeline, log)):
                    stuck[f"copiers of {pipeline.name} stuck"] = [self._committed(pipeline)]
            if not self._wait_for(lambda of=topic: self._ends(of, READ_COMMITTED) == self._ends(of, READ_UNCOMMITTED)):
                stuck[f"open transaction in {topic}"] = [self._ends(topic, READ_COMMITTED), self._ends(topic, READ_UNCOMMITTED)]
            topic_ends = self._ends(topic, READ_COMMITTED)
            log |= self._read(topic, topic_ends)
            ends |= topic_ends
        self._starts = ends
        for key, positions in log.items():
            self._everything.setdefault(key, []).extend(positions)
        return log, stuck

    def _has_read_all(self, pipeline: Pipeline, log: Log) -> bool:
        """Whether the group has committed what is behind the last record of each partition."""
        committed = self._committed(pipeline)
        return all(committed[key] > log[key][-1][0] for key in keys_of(pipeline.input) if log[key])

    def _committed(self, pipeline: Pipeline) -> dict[str, int]:
        settings = {"group.id": pipeline.group, "isolation.level": "read_committed", "enable.auto.commit": False, "log_level": 0}
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._cluster.bootstrap, **settings})
        try:
            wanted = [confluent_kafka.TopicPartition(pipeline.input, index) for index in range(PARTITIONS)]
            return {f"{each.topic}-{each.partition}": each.offset for each in consumer.committed(wanted, ADMIN_TIMEOUT_S)}
        except confluent_kafka.KafkaException:  # an open transaction has offsets of the group
            return dict.fromkeys(keys_of(pipeline.input), -1)
        finally:
            consumer.close()

    def _ends(self, topic: str, isolation_level: int) -> dict[str, int]:
        """The last stable offsets of a topic, or its high watermarks."""
        ends = {}
        for index, key in enumerate(keys_of(topic)):
            asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST)])
            request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[asked])
            ends[key] = self._cluster.wait_for(lambda of=index, request=request: self._end(topic, of, request), f"the end of {key}").offset
        return ends

    def _end(self, topic: str, index: int, request: ListOffsetsRequest) -> Any:
        leader_id = self._cluster.partition(topic, index).leader_id
        answer = self._cluster.ask_node(leader_id, request, 7).topics[0].partitions[0]
        return answer if answer.error_code == ErrorCode.NONE else None

    def _read(self, topic: str, ends: Mapping[str, int]) -> Log:
        """All that read_committed shows of these partitions, from the end of the last window on."""
        settings = {"group.id": "reader", "isolation.level": "read_committed", "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._cluster.bootstrap, **settings, "check.crcs": True, "log_level": 0})
        log: Log = {key: [] for key in ends}
        left = {key for key, end in ends.items() if end > self._starts[key]}
        partitions = {key: confluent_kafka.TopicPartition(topic, index, self._starts[key]) for index, key in enumerate(keys_of(topic))}
        try:
            consumer.assign([partitions[key] for key in left])
            deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
            while left:
                assert time.monotonic() < deadline_s, f"no end of {sorted(left)} in {SETTLE_TIMEOUT_S} s\n{self._cluster.log_tails()}"
                for message in consumer.consume(READ_BATCH_SIZE, 0.2):
                    key = f"{message.topic()}-{message.partition()}"
                    if message.error() is None:
                        log[key].append((message.offset(), message.value().decode()))
                    elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF and message.offset() >= ends[key]:
                        left.discard(key)
        finally:
            consumer.close()
        return log

    def _wait_for(self, holds: Callable[[], bool]) -> bool:
        deadline_s = time.monotonic() + SETTLE_TIMEOUT_S
        while not holds():
            if time.monotonic() > deadline_s:
                return False
            for client in self.load.clients.values():
                client.end_if_hung()
            time.sleep(WAIT_INTERVAL_S)
        return True


def keys_of(*topics: str) -> list[str]:
    """The partitions of these topics, as histories name them."""
    return [f"{topic}-{index}" for topic in topics for index in range(PARTITIONS)]


def judge(pipelines: Sequence[Pipeline], operations: Sequence[Operation], reads: Sequence[Operation], log: Log) -> dict[str, list[Any]]:
    """The anomalies of a window, by name: what its transactions and reads say of `log`, which is all that read_committed shows of it; and
    outputs that are no copies of their inputs, record by record and in order."""
    unmarked = {key for pipeline in pipelines if not pipeline.marks for key in keys_of(pipeline.output)}
    # The values of an output without marks say nothing of who wrote them.
    final = {"p": "reader", "t": "ok", "f": "poll", "m": [("poll", {key: of for key, of in log.items() if key not in unmarked})]}
    starts = {key: of[0][0] for key, of in log.items() if of}
    recent = sorted((_since(starts, operation) for operation in operations), key=lambda each: each["inv"])
    anomalies = check([*recent, *(_since(starts, read) for read in reads), final])
    for pipeline in pipelines:
        for read_from, written_to in zip(keys_of(pipeline.input), keys_of(pipeline.output), strict=True):
            wanted = [value for _, value in log[read_from]]
            found = [pipeline.original(value) for _, value in log[written_to]]
            if found != wanted:
                anomalies[f"{written_to} is no copy of {read_from}"] = [_difference(wanted, found)]
    return anomalies


def commit_times_s(strikes: Sequence[Strike], operations: Sequence[Operation]) -> list[float]:
    """For each strike and each topic, how long it took until a transaction that began after it was committed; without those that saw none
    any more."""
    by_topic: dict[str, list[Operation]] = {}
    for operation in operations:
        if operation["t"] == "ok":
            _, key, _, _ = operation["m"][-1]
            by_topic.setdefault(key.rpartition("-")[0], []).append(operation)
    found = []
    for strike in strikes:
        for of in by_topic.values():
            ends = [operation["ret"] for operation in of if operation["inv"] > strike.struck_ns]
            if ends:
                found.append((min(ends) - strike.struck_ns) / 1e9)
    return found


def summary(windows: Sequence[Window]) -> str:
    """The figures of a run, for the note."""
    outcomes = sum((window.outcomes for window in windows), Counter())
    counts = Counter(strike.kind.partition(" ")[0] for window in windows for strike in window.strikes)
    times_s = sorted(each for window in windows for each in window.commit_after_s)
    ends = f"{outcomes['ok']} transactions committed, {outcomes['fail']} aborted, {outcomes['info']} unknown to their clients"
    lines = [
        f"{len(windows)} windows: {ends}; {sum(window.copied for window in windows)} records copied",
        f"{counts.total()} faults: {', '.join(f'{kind} {count}' for kind, count in counts.most_common())}",
        f"windows with anomalies: {sum(bool(window.anomalies) for window in windows)}",
    ]
    if times_s:
        lines.append(f"from a fault to each topic's next commit: p50 {statistics.median(times_s):.2f} s, max {times_s[-1]:.2f} s")
    return "\n".join(lines)


def _since(starts: Mapping[str, int], operation: Operation) -> Operation:
    """An operation without what it read before this window, which earlier ones have judged."""
    steps = []
    for step in operation.get("m", ()):
        if step[0] == "poll":
            step = ("poll", {key: [each for each in of if each[0] >= starts.get(key, each[0])] for key, of in step[1].items()})
        steps.append(step)
    return {**operation, "m": steps} if steps else operation


def _difference(wanted: Sequence[str], found: Sequence[str]) -> str:
    missing, more = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    if missing or more:
        return f"missing {len(missing)}: {sorted(missing)[:EVIDENCE_SHOWN]}, too many {len(more)}: {sorted(more)[:EVIDENCE_SHOWN]}"
    first = next(index for index, pair in enumerate(zip(wanted, found, strict=True)) if pair[0] != pair[1])
    return f"another order from record {first} on: {wanted[first]} and {found[first]}"
