"""Clients of other languages: programs under tests/support that answer commands as lines of JSON. Their words are the brokers and, if there
is a login, JSON of the authority's certificate, mechanism, user and password.

Their commands, by `op`, and what they need: create (topic, partitions, configs), add-partitions, delete, topics, alter-config and config
(topic, name, value), ends (topic), groups, group, offsets (group, topic), delete-group (group); produce (topic, codec, records: key and
value as base64), which answers with the records and where they went; join (group, topic), poll (timeout_ms), commit, leave: one member.
Of sarama alone: scrape (version), which answers with what kafka_exporter exports. A failure is answered by `error` with the library's
own words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.clients.adapters import CODECS
from tests.clients.members import POLL_MS, Member
from tests.support.go_programs import go_program
from tests.support.json_program import JsonProgram, to_bytes, to_text
from tests.support.messages import Message, Stored
from tests.support.node_programs import node_command
from tests.support.secured_cluster import Endpoint


@dataclass(frozen=True, slots=True)
class Library:
    """What starts its program, what of the commands it has no calls for, and what it says when something is refused."""

    command: Callable[[], list[str]]
    written: tuple[str, ...] = CODECS
    """Codecs that it writes as Apache Kafka takes them."""
    lacks: frozenset[str] = frozenset()
    errors: Mapping[str, str] = field(default_factory=dict)


LIBRARIES = {
    "sarama": Library(
        lambda: [str(go_program("sarama"))],
        errors={
            "topic exists": "Topic with this name already exists",
            "unknown topic": "topic or partition that does not exist",
            "invalid config": "The configuration is invalid|invalid value|Invalid value",
            "too large": "larger than|too large",
            "group not empty": "group is not empty|non-empty",
        },
    ),
    "kafka-go": Library(
        lambda: [str(go_program("kafkago"))],
        errors={
            "topic exists": "Topic Already Exists",
            "unknown topic": "Unknown Topic Or Partition",
            "invalid config": "Invalid Config",
            "too large": "Message Size Too Large",
            "group not empty": "Group Not Empty|Non Empty Group",
        },
    ),
    "franz-go": Library(
        lambda: [str(go_program("franzgoclassic"))],
        errors={
            "topic exists": "TOPIC_ALREADY_EXISTS",
            "unknown topic": "UNKNOWN_TOPIC_OR_PARTITION",
            "invalid config": "INVALID_CONFIG",
            "too large": "MESSAGE_TOO_LARGE",
            "group not empty": "NON_EMPTY_GROUP",
        },
    ),
    "kafkajs": Library(
        lambda: node_command("kafkajs"),
        written=("none", "gzip", "snappy", "zstd"),  # its LZ4 has dependent blocks, which Apache Kafka refuses
        lacks=frozenset(("places", "incremental alter")),
        errors={
            "topic exists": "the topic was there",
            "unknown topic": "does not host this topic-partition",
            "invalid config": "Configuration is invalid",
            "too large": "larger than the max message size",
            "group not empty": "group is not empty",
        },
    ),
}


class ForeignClient:
    """A program of its own."""

    def __init__(self, library: str, endpoint: Endpoint) -> None:
        self._program = JsonProgram([*LIBRARIES[library].command(), *endpoint.words()])

    def ask(self, op: str, **more: Any) -> dict[str, Any]:
        """The answer. ProgramError with the library's words if it is refused."""
        return self._program.ask({"op": op, **more})

    def produce(self, topic: str, messages: Sequence[Message], codec: str = "none") -> list[Stored]:
        records = [{"key": to_text(message.key), "value": to_text(message.value)} for message in messages]
        return _stored(self.ask("produce", topic=topic, codec=codec, records=records))

    def close(self) -> None:
        self._program.close()


class ForeignMember(Member):
    """A member in a program of its own."""

    def __init__(self, library: str, endpoint: Endpoint, topic: str, group: str) -> None:
        self._client = ForeignClient(library, endpoint)
        self._client.ask("join", topic=topic, group=group)
        self._owned: set[int] = set()

    def poll(self) -> list[Stored]:
        answer = self._client.ask("poll", timeout_ms=POLL_MS)
        self._owned = set(answer["assignment"] or ())
        return _stored(answer)

    def assignment(self) -> set[int]:
        return self._owned

    def commit(self) -> None:
        self._client.ask("commit")

    def close(self) -> None:
        self._client.ask("leave")
        self._client.close()


def _stored(answer: Mapping[str, Any]) -> list[Stored]:
    return [
        Stored(record["partition"], record["offset"], 0, to_bytes(record["key"]), to_bytes(record["value"]))
        for record in answer["records"] or ()
    ]
