"""Kafka Streams for the tests: its jars, and instances of the programs in java/StreamsTopologies.java.

A JVM (java/StreamsHost.java) may run any number of instances, so most tests share one; whoever wants to kill an instance starts another.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.json_program import JsonProgram
from tests.support.jvm import KeptClasses, programs_jar
from tests.support.kafka import JVM_FLAGS, KAFKA_VERSION, class_path, class_path_of, java_source

JARS = (("org.apache.kafka", "kafka-streams", KAFKA_VERSION),)
SOURCES = ("StreamsHost.java", "StreamsTopologies.java")
WAIT_MAX_S = 120.0
POLL_INTERVAL_S = 0.05
TEXT = "org.apache.kafka.common.serialization.Serdes$StringSerde"
# Every update is a record, at once. Records of several input topics that are there already are taken in the order of their timestamps.
SETTINGS: Mapping[str, str] = {
    "default.key.serde": TEXT,
    "default.value.serde": TEXT,
    "processing.guarantee": "at_least_once",
    "statestore.cache.max.bytes": "0",
    "commit.interval.ms": "100",
    "consumer.auto.offset.reset": "earliest",
}


def streams_class_path() -> str:
    """Kafka's jars with those of Kafka Streams, downloaded at the first call on this machine. Ends the test without Java or Maven."""
    return f"{class_path()}:{class_path_of('kafka-streams', JARS)}"


@functools.cache
def programs_path() -> str:
    """The class path with the programs of the tests."""
    found = streams_class_path()
    return f"{found}:{programs_jar('streams-programs', [Path(java_source(name)) for name in SOURCES], found)}"


@dataclass(frozen=True, slots=True)
class Description:
    """What an instance says of itself: tasks by id, records that were restored by store, records that stores lack by store."""

    state: str
    failure: str | None
    active: tuple[str, ...]
    standby: tuple[str, ...]
    restored: Mapping[str, int]
    lags: Mapping[str, int]


class StreamsHost:
    """Owns a JVM with instances in it. `kill` ends all of them at once, `close` in good order."""

    def __init__(self, programs: str) -> None:
        """`programs` is what `programs_path` returned."""
        self._classes = KeptClasses("streams", programs)
        classes = self._classes.flags() or self._classes.flags_to_leave()
        self._jvm = JsonProgram(["java", *JVM_FLAGS, *classes, "-cp", programs, "StreamsHost"])

    def start(
        self, topology: str, application_id: str, bootstrap: str, state_dir: Path, settings: Mapping[str, str] | None = None
    ) -> Instance:
        """An instance of a program that has been started. Its topics are called "application id-part"."""
        config = {"application.id": application_id, "bootstrap.servers": bootstrap, "state.dir": str(state_dir)}
        name = f"{application_id}@{state_dir}"
        self._jvm.ask({"op": "start", "name": name, "topology": topology, "config": {**SETTINGS, **config, **(settings or {})}})
        return Instance(self._jvm, name)

    def kill(self) -> None:
        self._jvm.kill()

    def close(self) -> None:
        self._jvm.close()
        self._classes.keep()


class Instance:
    """One instance. `with` closes it at the end, unless that was done."""

    def __init__(self, jvm: JsonProgram, name: str) -> None:
        self._jvm = jvm
        self._name = name
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            error.add_note(f"{self._name}: {self.describe()}" if not self._is_closed else f"{self._name} was closed")
        if not self._is_closed:
            self.close()

    def describe(self) -> Description:
        answer = self._jvm.ask({"op": "describe", "name": self._name})
        return Description(
            answer["state"], answer["failure"], tuple(answer["active"]), tuple(answer["standby"]), answer["restored"], answer["lags"]
        )

    def wait_until(self, holds: Callable[[Description], bool], what: str) -> Description:
        """The first description of which `holds` is true. AssertionError when the instance fails, or the time is up."""
        deadline_s = time.monotonic() + WAIT_MAX_S
        while True:
            description = self.describe()
            if holds(description):
                return description
            assert description.failure is None, f"{self._name} failed: {description.failure}\n{self._jvm.log_tail()}"
            assert time.monotonic() < deadline_s, f"waited {WAIT_MAX_S} s for {what} of {self._name}: {description}\n{self._jvm.log_tail()}"
            time.sleep(POLL_INTERVAL_S)

    def wait_running(self) -> Description:
        """Wait until it has restored its state and processes records."""
        return self.wait_until(lambda description: description.state == "RUNNING", "state RUNNING")

    def wait_failed(self) -> str:
        """What it failed of."""
        failure = self.wait_until(lambda description: description.failure is not None, "a failure").failure
        assert failure is not None
        return failure

    def store(self, name: str) -> dict[str, str]:
        """What is in a key-value store of this instance, in active tasks and standby ones."""
        entries: dict[str, str] = self._jvm.ask({"op": "store", "name": self._name, "store": name})["entries"]
        return entries

    def close(self, *, leave: bool = True, clean: bool = False) -> None:
        """Ends the instance. It leaves its group, unless `leave` is false: then its session has to end. With `clean` its state is wiped."""
        self._is_closed = True
        self._jvm.ask({"op": "close", "name": self._name, "leave": leave, "clean": clean})
