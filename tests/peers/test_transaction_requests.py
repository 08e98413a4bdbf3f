"""Dialogues about transactions, odd requests among them, are answered by Barnabas as by Apache Kafka, field by field.

Producer ids are compared by the order in which they come. What clients try again (a coordinator that loads, or that is still ending the
transaction before) is asked again here. What differs on purpose is named in DIFFERENT, and told in docs/protocol.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.schema import Message
from tests.peers.odd_request import topic
from tests.peers.transaction_dialogues import DIALOGUES, TRANSACTION_KEY_TYPE, Tell
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

ATTEMPTS_MAX = 300
ATTEMPT_INTERVAL_S = 0.05
ANSWER_TIMEOUT_S = 10.0
AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}
LEFT_OUT = {"port", "log_append_time_ms", "error_message", "records"}
PRODUCER_FIELDS = {"producer_id"}

NEVER_ANSWERED = "Kafka never answers"
ASKED_FIRST = "Kafka asks the transaction's coordinator before it looks at the topic"
DIFFERENT: Mapping[str, Mapping[str, str]] = {
    "adding_by_brokers": {f"v{version} none": NEVER_ANSWERED for version in (4, 5)},
    "producing_in_transactions": {f"v{version} internal topic": ASKED_FIRST for version in (3, 8, 9, 10, 11)},
    "writing_markers": {
        **{f"v{version} negative epochs": "Kafka trips" for version in (1, 2)},
        **{f"v{version} a partition twice": NEVER_ANSWERED for version in (1, 2)},
    },
}
"""By dialogue and label, reasons in short; docs/protocol.md has them in full."""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Apache Kafka and Barnabas with the same topics."""
    kafka_jars()
    root: Path = tmp_path_factory.mktemp("transactions")
    servers = KafkaServer(root / "kafka"), BrokerProcess(root / "barnabas", {"node.id": "1"})
    try:
        for server in servers:
            server.start()
            teller = Teller(server)
            teller("topics", CreateTopicsRequest(topics=[topic("three", 3), topic("other"), topic("fetched")], timeout_ms=30_000), 5)
            for key_type in (0, TRANSACTION_KEY_TYPE):
                teller("coordinator", FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]), 4)
        yield servers
    finally:
        for server in servers:
            server.end()


class Teller:
    """Sends the messages of a dialogue to one server, and notes the answers."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._producer_ids: list[int] = []
        self.noted: list[tuple[str, Any]] = []

    def __call__(self, label: str, message: Any, version: int) -> Any:
        answer: Any = None
        for _ in range(ATTEMPTS_MAX):
            with WireClient(self._server.host, self._server.port, timeout_s=ANSWER_TIMEOUT_S) as client:
                try:
                    answer = client.request(message, version)
                except (EOFError, OSError) as error:
                    self.noted.append((label, "no answer" if isinstance(error, TimeoutError) else "closed"))
                    return _Unanswered
            if not _error_codes(answer) & AGAIN:
                break
            time.sleep(ATTEMPT_INTERVAL_S)
        self.noted.append((label, self._plain(answer)))
        return answer

    def _plain(self, value: Any, name: str = "") -> Any:
        if isinstance(value, Message):
            return {each: self._plain(getattr(value, each), each) for each in value.__slots__ if each not in LEFT_OUT}
        if isinstance(value, list):
            return sorted((self._plain(each) for each in value), key=repr)
        return self._name(value) if name in PRODUCER_FIELDS else value

    def _name(self, producer_id: int) -> int:
        if producer_id < 0 or producer_id > 1_000_000:
            return producer_id  # none, or one that the dialogue has made up
        if producer_id not in self._producer_ids:
            self._producer_ids.append(producer_id)
        return self._producer_ids.index(producer_id)


class _Unanswered:
    producer_id = producer_epoch = -1


def _error_codes(value: Any) -> set[int]:
    if isinstance(value, Message):
        codes = {getattr(value, name) for name in ("error_code", "partition_error_code") if hasattr(value, name)}
        return codes.union(*(_error_codes(getattr(value, name)) for name in value.__slots__))
    return set[int]().union(*map(_error_codes, value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("dialogue", DIALOGUES, ids=lambda dialogue: dialogue.__name__)
def test_a_dialogue_about_transactions_goes_as_with_kafka(
    both: tuple[ServerProcess, ServerProcess], dialogue: Callable[[Tell], None]
) -> None:
    tellers = [Teller(server) for server in both]
    for teller in tellers:
        dialogue(teller)

    differing = {
        label: {"kafka": theirs, "barnabas": ours}
        for (label, theirs), (_, ours) in zip(*(teller.noted for teller in tellers), strict=True)
        if theirs != ours
    }
    expected = DIFFERENT.get(dialogue.__name__, {})
    assert {label: each for label, each in differing.items() if label not in expected} == {}
    assert expected.keys() == differing.keys(), "no difference any more: take it out of DIFFERENT and docs/protocol.md"
