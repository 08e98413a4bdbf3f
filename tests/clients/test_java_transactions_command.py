"""kafka-transactions.sh: of transactions that their coordinator knows, and of one that hangs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

import pytest

from protocol.errors import ErrorCode
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.clients.topics import create_topic, eventually
from tests.support.broker import BrokerProcess
from tests.support.java_host import JavaHost
from tests.support.process import ServerProcess
from tests.support.raw_transactions import add_partition, init_producer_id, last_stable_offset, produce
from tests.support.wire import WireClient

TIMEOUT_MS = 60_000
SHORT_TIMEOUT_MS = 1_000  # the broker looks for hanging transactions as often
HUNG_PRODUCER = (4711, 0)
AGE_MS = 120_000
TRANSACTION_COORDINATOR = 1
MakeServer = Callable[[dict[str, str]], ServerProcess]


@pytest.fixture
def client(server: ServerProcess) -> Iterator[WireClient]:
    with WireClient(server.host, server.port) as client:
        yield client


def run(java_host: JavaHost, server: ServerProcess, *words: str) -> list[dict[str, str]]:
    """The rows that the tool prints, by the names of their columns."""
    lines = java_host.tool("TransactionsCommand", "--bootstrap-server", server.bootstrap, *words).lines
    if not lines:
        return []
    header, *rows = (re.split(r"\s+", line.strip()) for line in lines)
    return [dict(zip(header, row, strict=False)) for row in rows]  # the last columns may be empty


def begin(client: WireClient, transactional_id: str, topic: str) -> tuple[int, int]:
    """Open a transaction with one record in partition 0. Returns its producer id and epoch."""
    find = FindCoordinatorRequest(key_type=TRANSACTION_COORDINATOR, coordinator_keys=[transactional_id])
    eventually(lambda: client.request(find, 4).coordinators[0].error_code == ErrorCode.NONE)
    given: list[tuple[int, int]] = []
    eventually(
        lambda: (producer := init_producer_id(client.request, transactional_id, TIMEOUT_MS)) is not None and not given.append(producer)
    )
    (producer,) = given
    add_partition(client.request, transactional_id, producer, topic)
    assert produce(client.request, transactional_id, producer, topic) is ErrorCode.NONE
    return producer


def test_an_open_transaction_is_listed_and_described(
    server: ServerProcess, client: WireClient, topic_name: str, java_host: JavaHost
) -> None:
    create_topic(server, topic_name, partitions=2)
    producer_id, epoch = begin(client, topic_name, topic_name)

    def listed(*filters: str) -> list[str]:
        return [row["TransactionState"] for row in run(java_host, server, "list", *filters) if row["TransactionalId"] == topic_name]

    (described,) = run(java_host, server, "describe", "--transactional-id", topic_name)
    (producer,) = run(java_host, server, "describe-producers", "--topic", topic_name, "--partition", "0")

    assert listed() == listed("--transactional-id-pattern", f"{topic_name[:5]}.*") == listed("--duration-filter", "0") == ["Ongoing"]
    assert listed("--transactional-id-pattern", topic_name[:5]) == listed("--duration-filter", "900000") == []
    assert (described["ProducerId"], described["ProducerEpoch"]) == (str(producer_id), str(epoch))
    assert (described["TransactionState"], described["TransactionTimeoutMs"]) == ("Ongoing", str(TIMEOUT_MS))
    assert described["TopicPartitions"] == f"{topic_name}-0"
    assert (producer["ProducerId"], producer["CurrentTransactionStartOffset"]) == (str(producer_id), "0")


def test_a_pattern_that_is_none_is_refused(server: ServerProcess, java_host: JavaHost) -> None:
    words = ["--bootstrap-server", server.bootstrap, "list", "--transactional-id-pattern", "("]

    refused = java_host.tool("TransactionsCommand", *words, expected_status=1)

    assert "INVALID_REGULAR_EXPRESSION" in refused.stderr, refused.stderr


def test_a_transaction_of_a_coordinator_is_terminated_and_its_producer_fenced(
    server: ServerProcess, client: WireClient, topic_name: str, java_host: JavaHost
) -> None:
    create_topic(server, topic_name)
    producer_id, epoch = begin(client, topic_name, topic_name)
    assert last_stable_offset(client.request, topic_name) == 0
    hanging = run(java_host, server, "find-hanging", "--topic", topic_name, "--max-transaction-timeout", "0")

    run(java_host, server, "forceTerminateTransaction", "--transactionalId", topic_name)

    assert hanging == []
    eventually(lambda: last_stable_offset(client.request, topic_name) == 2)
    (described,) = run(java_host, server, "describe", "--transactional-id", topic_name)
    assert described["TransactionState"] == "Empty"
    end = EndTxnRequest(transactional_id=topic_name, producer_id=producer_id, producer_epoch=epoch, committed=True)
    assert client.request(end, 3).error_code == ErrorCode.PRODUCER_FENCED


def test_a_hanging_transaction_is_found_named_and_aborted(make_server: MakeServer, topic_name: str, java_host: JavaHost) -> None:
    """A batch whose transaction no coordinator knows, as it came from bugs before transactions were verified."""
    server = make_server({"transaction.max.timeout.ms": str(SHORT_TIMEOUT_MS)})
    create_topic(server, topic_name)
    find = ["find-hanging", "--topic", topic_name, "--max-transaction-timeout", "1"]
    switch = ["--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "transaction.partition.verification.enable=false"]
    with WireClient(server.host, server.port) as client:
        java_host.tool("kafka.admin.ConfigCommand", "--bootstrap-server", server.bootstrap, *switch)
        eventually(lambda: produce(client.request, "hung", HUNG_PRODUCER, topic_name, age_ms=AGE_MS) is ErrorCode.NONE)
        assert last_stable_offset(client.request, topic_name) == 0

        (found,) = run(java_host, server, *find)
        abort = ["abort", "--topic", topic_name, "--partition", "0", "--start-offset", found["StartOffset"]]
        if isinstance(server, BrokerProcess):
            (named,) = server.lines_with("a transaction hangs")
            assert f"`kafka-transactions.sh --bootstrap-server {shlex.join([server.bootstrap, *abort])}` ends it" in named
        run(java_host, server, *abort)

        assert (found["ProducerId"], found["ProducerEpoch"], found["Duration(min)"]) == ("4711", "0", "2")
        assert run(java_host, server, *find) == []
        assert last_stable_offset(client.request, topic_name) == 2
