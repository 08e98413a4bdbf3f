"""The clients that run while a server is crashed, and the history that they leave for the checker.

Three librdkafka producers and one Java producer, all idempotent with acks=all, send numbered records over all partitions
and ride over every restart; two groups of two consumers, one of either protocol, read and commit. Each acked send is one operation of the
history.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka

from tests.support.commits import committed
from tests.support.kafka import java_command
from tests.support.process import LineReader

TOPIC = "crash"
CLASSIC, CONSUMER = "classic", "consumer"  # group.protocol (KIP-848)
GROUPS: Mapping[str, str] = {"crash-group": CLASSIC, "crash-consumer-group": CONSUMER}
MEMBERS = 2  # of each group
PARTITIONS = 6
SEGMENT_BYTES = 1024 * 1024
VALUE_SIZE = 1000
SENDS_PER_SECOND = 400
# What a producer may have unanswered while the server is away: bounds the burst at its return.
IN_FLIGHT_LIMIT = 2000
REQUESTS_IN_FLIGHT_MAX = 5  # of an idempotent producer
SETTLE_TIMEOUT_S = 90.0
POLL_BATCH_SIZE = 500
COMMIT_INTERVAL_S = 0.1

Operation = dict[str, Any]
Commits = dict[tuple[str, int], int]  # of a group and a partition: the offset


def payload(identity: str) -> bytes:
    """The value of a record: its identity again and again, so that a torn or mixed-up value shows."""
    return ((identity + ":") * (VALUE_SIZE // len(identity) + 1))[:VALUE_SIZE].encode()


def identity_of(value: bytes | None) -> str:
    """The identity of a record's value, or a text that no producer sent when the value is not what it should be."""
    text = (value or b"").decode(errors="replace")
    identity = ":".join(text.split(":")[:2])
    return identity if payload(identity) == value else f"corrupt value {text[:40]!r}"


@dataclass
class History:
    """Operations of all clients. Threads only append to it; whoever reads it pauses the producers first."""

    sends: list[Operation] = field(default_factory=list)
    polls: list[Operation] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    client_errors: Counter[str] = field(default_factory=Counter)
    """What clients were told while they went on: by role and the error's name. Only for the report."""

    def add_send(self, process: str, partition: int, identity: str, offset: int | None, invoked_ns: int, returned_ns: int) -> None:
        """One send: acked at an offset, or (None) given up by its client, so that nobody knows whether it was written."""
        self.sends.append(
            {
                "p": process,
                "t": "info" if offset is None else "ok",
                "f": "send",
                "m": [("send", partition, offset, identity)],
                "inv": invoked_ns,
                "ret": returned_ns,
            }
        )

    @property
    def acked_count(self) -> int:
        return len(self.sends) - len(self.errors)

    def acked_ends(self) -> dict[int, int]:
        """The offset behind the last acked record of each partition."""
        ends: dict[int, int] = {}
        for send in self.sends:
            _, partition, offset, _ = send["m"][0]
            if offset is not None:
                ends[partition] = max(offset + 1, ends.get(partition, 0))
        return ends

    def operations(self, final_read: Operation) -> list[Operation]:
        """All operations as the checker wants them: sends in the order of their start, then what was read."""
        return [*sorted(self.sends, key=lambda operation: operation["inv"]), *self.polls, final_read]


class LibrdkafkaProducer:
    """An idempotent confluent-kafka producer on a thread of its own. It starts paused."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        history: History,
        sends_per_second: int = SENDS_PER_SECOND,
        *,
        requests_in_flight: int = REQUESTS_IN_FLIGHT_MAX,
    ) -> None:
        self.name = name
        self._history = history
        self._interval_s = 1 / sends_per_second
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "max.in.flight.requests.per.connection": requests_in_flight,
                "linger.ms": 2,
                "retry.backoff.ms": 50,
                "socket.timeout.ms": 10_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
                "error_cb": error_counter("producer", history),
            }
        )
        self._running = threading.Event()
        self._idle = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        self._idle.clear()
        self._running.set()

    def pause(self) -> None:
        """Stops sending; `wait_until_idle` tells when all that was sent is answered."""
        self._idle.clear()
        self._running.clear()

    def wait_until_idle(self) -> bool:
        """Whether all that was sent is answered within the time."""
        return self._idle.wait(SETTLE_TIMEOUT_S)

    def close(self) -> None:
        self._closed = True
        self._running.set()
        self._thread.join(SETTLE_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self._work()
        except confluent_kafka.KafkaException as e:
            # A fatal error, which the broker caused: this producer sends no more, and the round fails by it.
            self._history.errors.append(f"{self.name}: {e}")

    def _work(self) -> None:
        number = 0
        while not self._closed:
            if not self._running.is_set():
                if self._producer.flush(0.1) == 0:
                    self._idle.set()
                    self._running.wait()
                continue
            self._producer.poll(self._interval_s)
            if len(self._producer) < IN_FLIGHT_LIMIT:
                self._send(number)
                number += 1

    def _send(self, number: int) -> None:
        partition, identity, invoked_ns = number % PARTITIONS, f"{self.name}:{number}", time.monotonic_ns()

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self._history.errors.append(f"{identity}: {error}")
            offset = message.offset() if error is None else None
            self._history.add_send(self.name, partition, identity, offset, invoked_ns, time.monotonic_ns())

        self._producer.produce(TOPIC, payload(identity), partition=partition, on_delivery=delivered)


class JavaProducer:
    """java/AckedProducer.java in its own JVM, with the same manners as LibrdkafkaProducer."""

    def __init__(self, name: str, bootstrap: str, history: History, sends_per_second: int = SENDS_PER_SECOND) -> None:
        self.name = name
        self._history = history
        arguments = [bootstrap, TOPIC, PARTITIONS, name, sends_per_second, VALUE_SIZE, IN_FLIGHT_LIMIT]
        self._process = subprocess.Popen(
            java_command("AckedProducer", *map(str, arguments), flags=["-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = LineReader(self._process, on_line=self._take)
        self._pauses = 1

    def resume(self) -> None:
        self.wait_until_idle()
        self._pauses += 1
        self._tell("resume")

    def pause(self) -> None:
        self._tell("pause")

    def wait_until_idle(self) -> bool:
        try:
            self._reader.wait_for(self._pauses, containing="paused", timeout_s=SETTLE_TIMEOUT_S)
        except AssertionError:
            return False
        return True

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(SETTLE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(SETTLE_TIMEOUT_S)

    def _tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def _take(self, line: str) -> bool:
        """Puts an acknowledgement into the history; other lines stay with the reader."""
        if not line.startswith("{"):
            return False
        answer = json.loads(line)
        if "error" in answer:
            self._history.errors.append(f"{answer['value']}: {answer['error']}")
        self._history.add_send(self.name, answer["partition"], answer["value"], answer.get("offset"), answer["inv"], answer["ret"])
        return True


PROTOCOL_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    CLASSIC: {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500},
    CONSUMER: {"group.protocol": CONSUMER},  # the coordinator says the rest
}


class GroupMember:
    """A consumer of a group on a thread of its own: reads, commits, and remembers the commits that were acked."""

    def __init__(self, name: str, group: str, bootstrap: str, history: History) -> None:
        self.group = group
        self.committed: dict[int, int] = {}
        self._name = name
        self._history = history
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **PROTOCOL_SETTINGS[GROUPS[group]],
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "socket.timeout.ms": 10_000,
                "log_level": 0,
                "error_cb": error_counter("consumer", history),
            }
        )
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._thread.join(SETTLE_TIMEOUT_S)

    def _run(self) -> None:
        self._consumer.subscribe([TOPIC])
        last_commit = 0.0
        has_new = False
        while not self._closed:
            polled = self._consumer.consume(POLL_BATCH_SIZE, timeout=0.1)
            messages = [message for message in polled if message.error() is None]
            self._history.client_errors.update(f"consumer {message.error().name()}" for message in polled if message.error() is not None)
            if messages:
                self._history.polls.append(poll_operation(self._name, messages, in_group=True))
                has_new = True
            if has_new and time.monotonic() - last_commit >= COMMIT_INTERVAL_S:
                has_new = not self._commit()
                last_commit = time.monotonic()
        self._consumer.close()

    def _commit(self) -> bool:
        try:
            answers = self._consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as e:
            # The server is away or the group rebalances: what counts are the commits that were acked.
            if e.args[0].code() != confluent_kafka.KafkaError._NO_OFFSET:  # nothing new since the last commit
                self._history.client_errors[f"commit {e.args[0].name()}"] += 1
            return False
        for answer in answers or ():
            if answer.error is None and answer.offset >= 0:
                self.committed[answer.partition] = max(answer.offset, self.committed.get(answer.partition, 0))
        return True


def poll_operation(process: str, messages: list[Any], *, in_group: bool) -> Operation:
    """What a consumer read as one operation. Positions of a group's members may move at any time, so they are exempt."""
    positions: dict[int, list[tuple[int, str]]] = {}
    for message in messages:
        positions.setdefault(message.partition(), []).append((message.offset(), identity_of(message.value())))
    return {"p": process, "t": "ok", "f": "poll", "m": [("poll", positions)], "rebalanced": set(positions) if in_group else set()}


def error_counter(role: str, history: History) -> Callable[[confluent_kafka.KafkaError], None]:
    """librdkafka's error_cb: its own and the broker's errors that it goes on after."""

    def count(error: confluent_kafka.KafkaError) -> None:
        history.client_errors[f"{role} {error.name()}"] += 1

    return count


class Load:
    """All clients of one campaign with their history."""

    def __init__(
        self,
        bootstrap: str,
        *,
        has_java: bool = True,
        sends_per_second: int = SENDS_PER_SECOND,
        requests_in_flight: int = REQUESTS_IN_FLIGHT_MAX,
    ) -> None:
        """`requests_in_flight`: how many each librdkafka producer may have unanswered on one connection."""
        self.history = History()
        self.producers: list[LibrdkafkaProducer | JavaProducer] = [
            LibrdkafkaProducer(f"librdkafka-{number}", bootstrap, self.history, sends_per_second, requests_in_flight=requests_in_flight)
            for number in range(3)
        ]
        if has_java:
            self.producers.append(JavaProducer("java", bootstrap, self.history, sends_per_second))
        self.members = [
            GroupMember(f"{protocol}-member-{number}", group, bootstrap, self.history)
            for group, protocol in GROUPS.items()
            for number in range(MEMBERS)
        ]

    def resume(self) -> None:
        for producer in self.producers:
            producer.resume()

    def settle(self) -> list[str]:
        """Stops the producers and waits until their sends are answered. Returns who still waits for an answer."""
        for producer in self.producers:
            producer.pause()
        return [producer.name for producer in self.producers if not producer.wait_until_idle()]

    def committed(self) -> Commits:
        """The highest offset of each group and partition whose commit was acked to a member."""
        highest: Commits = {}
        for member in self.members:
            for partition, offset in dict(member.committed).items():
                key = member.group, partition
                highest[key] = max(offset, highest.get(key, 0))
        return highest

    def all_committed(self, ends: Mapping[int, int]) -> Commits:
        """What `committed` is once every group has reached these ends."""
        return {(group, partition): end for group in GROUPS for partition, end in ends.items()}

    def close(self) -> None:
        for client in [*self.members, *self.producers]:
            client.close()


def lost_commits(bootstrap: str, acked: Commits, timeout_s: float) -> list[tuple[str, int, int, int]]:
    """Group, partition, acked and stored offset of each commit that was acked and is not there any more."""
    lost = []
    for group in {group for group, _ in acked}:
        offsets = {partition: offset for (of_group, partition), offset in acked.items() if of_group == group}
        consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
        try:
            answers = committed(consumer, [confluent_kafka.TopicPartition(TOPIC, partition) for partition in offsets], timeout_s)
        finally:
            consumer.close()
        stored = {answer.partition: answer.offset for answer in answers}
        lost += [(group, partition, offset, stored[partition]) for partition, offset in offsets.items() if stored[partition] < offset]
    return lost
