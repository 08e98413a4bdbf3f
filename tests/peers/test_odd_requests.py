"""Odd but legal requests get the same answers from Barnabas and from Apache Kafka, field by field.

What differs on purpose is named in `DIFFERENT`, and told in docs/protocol.md with the reason; a difference that has gone fails too.
Ids, ports and times are left out, as are messages beside error codes of the APIs in `OTHER_WORDS`: people read them, no client does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.server import STANDARD_AUTHORIZER
from protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from protocol.messages.describe_configs import DescribeConfigsRequest
from protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from protocol.schema import Message
from tests.peers.answers import plain
from tests.peers.odd_request import OddRequest
from tests.peers.odd_requests import PREPARATION, REQUESTS
from tests.support.broker import BrokerProcess
from tests.support.kafka import KafkaServer, kafka_jars
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

WITH_AUTHORIZER = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}

ATTEMPTS_MAX = 300
ATTEMPT_INTERVAL_S = 0.1
NOT_YET = {3, 6, 14, 15, 16}
"""Errors of a server that still takes over what was just created: unknown topic, not leader, coordinator loading or not there."""

TAKEN_OVER_LATER = (DescribeConfigsRequest, DescribeClientQuotasRequest, DescribeUserScramCredentialsRequest)
"""Kafka tells of an alteration a moment after it was answered."""

VOLATILE = {
    "cluster_id", "topic_id", "producer_id", "timestamp", "log_append_time_ms", "session_id", "member_id", "leader", "port", "log_dir",
    "usable_bytes",
}  # fmt: skip
OTHER_WORDS = ("Produce: ", "groups: find", "configs: describe resource type", "quotas: address ")

DIFFERENT = {
    "Produce: null records": "Kafka never answers",
    "Produce: timestamp -2 where records are rewritten": "Kafka trips over what it accepts elsewhere",
    "Metadata: null name v12": "Kafka trips",
    "configs: alter by operation 4": "Kafka trips",
    "configs: alter by operation -1": "Kafka trips",
    "cluster: an empty name": "Kafka trips",
    "quotas: alter consumer_byte_rate to nan": "Kafka stores it",
    "SCRAM: set an empty salted password": "Kafka trips",
    "other configs: a subscription's match 0 client_id=[": "the error says where RE2's syntax differs from Java's",
}
"""Reasons in short; docs/protocol.md has them in full."""

SHIFTED = {"Produce: timestamp -1 where records are rewritten"}
"""Their base offset is another because of one in DIFFERENT before it."""


@pytest.fixture(scope="module", params=[{}, WITH_AUTHORIZER], ids=["open", "authorized"])
def both(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Apache Kafka and Barnabas with the same topics; without an authorizer, and with one that lets everybody do everything."""
    kafka_jars()
    root: Path = tmp_path_factory.mktemp("odd")
    servers = KafkaServer(root / "kafka"), BrokerProcess(root / "barnabas", {"node.id": "1"})
    try:
        for server in servers:
            server.settings |= request.param
            server.start()
            for message, version in PREPARATION:
                _ask_until_ready(server, message, version)
        yield servers
    finally:
        for server in servers:
            server.end()


@pytest.mark.parametrize("request_", REQUESTS, ids=[each.name for each in REQUESTS])
def test_an_odd_request_is_answered_as_kafka_answers_it(both: tuple[ServerProcess, ServerProcess], request_: OddRequest) -> None:
    if request_.name == "Produce: null records":
        # Kafka's thread fails and the connection hangs: only ours can be asked.
        assert _answer(both[1], request_)["responses"][0]["partition_responses"][0]["error_code"] == 87
        return

    theirs, ours = (_answer(server, request_) for server in both)
    if isinstance(request_.message, TAKEN_OVER_LATER):
        for _ in range(ATTEMPTS_MAX):
            if ours == theirs or request_.name in DIFFERENT:
                break
            time.sleep(ATTEMPT_INTERVAL_S)
            theirs = _answer(both[0], request_)  # Kafka takes an alteration over after it was answered

    if request_.name in DIFFERENT:
        assert ours != theirs, "no difference any more: take it out of DIFFERENT and docs/protocol.md"
    elif request_.name not in SHIFTED:
        assert ours == theirs


def _ask_until_ready(server: ServerProcess, message: Any, version: int) -> None:
    for _ in range(ATTEMPTS_MAX):
        with WireClient(server.host, server.port) as client:
            answer = client.request(message, version)
        if not _error_codes(answer) & NOT_YET:
            return
        time.sleep(ATTEMPT_INTERVAL_S)
    raise AssertionError(f"{server.name} is not ready: {answer}")


def _error_codes(value: Any) -> set[int]:
    if isinstance(value, Message):
        codes = {getattr(value, "error_code", 0)}
        return codes.union(*(_error_codes(getattr(value, name)) for name in value.__slots__))
    return set[int]().union(*map(_error_codes, value)) if isinstance(value, list) else set()


def _answer(server: ServerProcess, request: OddRequest) -> Any:
    """The decoded answer as dicts and lists, or "closed"."""
    for _ in range(ATTEMPTS_MAX):
        with WireClient(server.host, server.port) as client:
            try:
                answer = client.request(request.message, request.version)
            except (EOFError, ConnectionError):
                return "closed"
        if not _error_codes(answer) & {14, 15}:  # a block of producer ids, or a coordinator, on its way
            break
        time.sleep(ATTEMPT_INTERVAL_S)
    left_out = VOLATILE | {"error_message", "batch_index_error_message"} if request.name.startswith(OTHER_WORDS) else VOLATILE
    return plain(answer, left_out)
