"""Members of groups by Kafka's Java consumer, of either protocol: any number in one JVM (tests/support/java/Consumers.java)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from tests.clients.members import POLL_MS, SESSION_TIMEOUT_MS, Member
from tests.support.json_program import JsonProgram, to_bytes
from tests.support.kafka import java_command
from tests.support.messages import Stored
from tests.support.process import ServerProcess

CONSUMER, CLASSIC = "consumer", "classic"
DEFAULT, LEAVE = "DEFAULT", "LEAVE_GROUP"
JAVA_STRATEGY = "org.apache.kafka.clients.consumer.{}"


class JavaConsumers(JsonProgram):
    """The JVM."""

    def __init__(self) -> None:
        super().__init__(java_command("Consumers"))
        self._numbers = itertools.count()

    def join(self, server: ServerProcess, topics: Sequence[str] | str, group: str, protocol: str = CONSUMER, **config: str) -> JavaMember:
        """A member that reads these topics, or those that an expression matches if it is a string. Underscores in the names of `config`
        stand for dots."""
        member = JavaMember(self, next(self._numbers), server.bootstrap, group, protocol, config)
        member.subscribe(topics)
        return member


class JavaMember(Member):
    """`events` are the calls of its rebalance listener: "assigned t-0 t-1", "revoked …", "lost …". `owned` is its assignment after the
    last poll."""

    def __init__(self, program: JavaConsumers, number: int, bootstrap: str, group: str, protocol: str, config: dict[str, str]) -> None:
        self._program = program
        self._number = number
        self.owned: set[tuple[str, int]] = set()
        self.events: list[str] = []
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "metadata.max.age.ms": "1000",
        }
        if protocol == CLASSIC:
            settings |= {"session.timeout.ms": str(SESSION_TIMEOUT_MS), "heartbeat.interval.ms": "300"}
        self._ask("open", config=settings | {name.replace("_", "."): value for name, value in config.items()})

    def _ask(self, op: str, **words: Any) -> dict[str, Any]:
        return self._program.ask({"op": op, "id": self._number, **words})

    def subscribe(self, topics: Sequence[str] | str) -> None:
        """To these topics, or to those that an expression matches."""
        if isinstance(topics, str):
            self._ask("subscribe", expression=topics)
        else:
            self._ask("subscribe", topics=list(topics))

    def poll(self) -> list[Stored]:
        answer = self._ask("poll", timeout_ms=POLL_MS)
        self.owned = {(topic, partition) for topic, partition in answer["assignment"]}
        self.events += answer["events"]
        return [
            Stored(
                partition=record["partition"],
                offset=record["offset"],
                timestamp_ms=record["timestamp"],
                key=to_bytes(record["key"]),
                value=to_bytes(record["value"]),
            )
            for record in answer["records"]
        ]

    def assignment(self) -> set[int]:
        return {partition for _, partition in self.owned}

    def commit(self) -> None:
        self._ask("commit")

    def commit_async(self) -> None:
        """Returns when its callback was called."""
        self._ask("commit async")

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._ask("seek", topic=topic, partition=partition, offset=offset)

    def member_id(self) -> str:
        return str(self._ask("describe")["member_id"])

    def epoch(self) -> int:
        """Its member epoch, or its generation in a classic group."""
        return int(self._ask("describe")["epoch"])

    def close(self, membership: str = DEFAULT) -> None:
        self._ask("close", membership=membership)
