"""Transactions of stock producers against one broker: what is committed is read, what is not stays hidden, and who is late is fenced."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.clients.topics import create_topic
from tests.clients.transactional import MakeProducer, committed_offset, read, run_transaction
from tests.support.process import ServerProcess
from tests.support.wire import WireClient

UPGRADE, SAFE_DOWNGRADE = 1, 2
MakeServer = Callable[[dict[str, str]], ServerProcess]


def test_what_is_committed_is_read_and_what_is_aborted_is_not(server: ServerProcess, topic_name: str, make_producer: MakeProducer) -> None:
    create_topic(server, topic_name, partitions=3)
    producer = make_producer(server, topic_name)
    producer.init()

    for number in range(4):
        values = [f"{number}-{index}" for index in range(4)]
        run_transaction(producer, topic_name, *values, is_committed=number % 2 == 0, partitions=3)

    committed = [f"{number}-{index}" for number in (0, 2) for index in range(4)]
    aborted = [f"{number}-{index}" for number in (1, 3) for index in range(4)]
    assert read(server, topic_name, count=8, partitions=3) == committed
    assert read(server, topic_name, isolation="read_uncommitted", count=16, partitions=3) == sorted(committed + aborted)


def test_an_open_transaction_hides_what_follows_it(server: ServerProcess, topic_name: str, make_producer: MakeProducer) -> None:
    create_topic(server, topic_name)
    first, second = make_producer(server, f"{topic_name}-1"), make_producer(server, f"{topic_name}-2")
    first.init()
    second.init()

    first.begin()
    first.send(topic_name, "open")
    run_transaction(second, topic_name, "behind it")

    assert read(server, topic_name) == []
    assert read(server, topic_name, isolation="read_uncommitted", count=2) == ["behind it", "open"]
    first.commit()
    assert read(server, topic_name, count=2) == ["behind it", "open"]


def test_offsets_count_when_their_transaction_is_committed(server: ServerProcess, topic_name: str, make_producer: MakeProducer) -> None:
    create_topic(server, topic_name)
    producer = make_producer(server, topic_name)
    producer.init()

    for offset, is_committed in ((5, True), (8, False), (9, True), (11, False)):
        producer.begin()
        producer.send(topic_name, str(offset))
        producer.commit_offset(topic_name, topic_name, offset)
        if is_committed:
            producer.commit()
        else:
            producer.abort()

    assert committed_offset(server, topic_name, topic_name) == 9
    assert read(server, topic_name, count=2) == ["5", "9"]


def test_a_second_instance_fences_the_first(server: ServerProcess, topic_name: str, make_producer: MakeProducer) -> None:
    create_topic(server, topic_name)
    zombie = make_producer(server, topic_name)
    zombie.init()
    zombie.begin()
    zombie.send(topic_name, "of the zombie")

    producer = make_producer(server, topic_name)
    producer.init()  # aborts what the first one has begun
    run_transaction(producer, topic_name, "of the next one")

    with pytest.raises(Exception) as refused:
        zombie.commit()
    assert zombie.is_fenced(refused.value), refused.value
    assert read(server, topic_name, count=1) == ["of the next one"]


def test_a_transaction_that_times_out_is_aborted(make_server: MakeServer, make_producer: MakeProducer) -> None:
    server = make_server({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"})
    create_topic(server, "t")
    late = make_producer(server, "late", timeout_ms=1000)
    late.init()
    late.begin()
    late.send("t", "late")

    other = make_producer(server, "other")
    other.init()
    run_transaction(other, "t", "in time")

    assert read(server, "t", count=1) == ["in time"]
    with pytest.raises(Exception) as refused:
        late.commit()
    # A commit with the epoch before the abort is INVALID_TXN_STATE at version 2, from Apache Kafka too.
    assert late.is_fenced(refused.value) or "InvalidTxnState" in str(refused.value), refused.value
    assert read(server, "t", count=1) == ["in time"]


def test_a_transaction_stays_open_over_a_crash_of_the_broker(make_server: MakeServer, make_producer: MakeProducer) -> None:
    server = make_server({"transaction.state.log.num.partitions": "3"})
    create_topic(server, "t")
    producer = make_producer(server, "t")
    producer.init()
    run_transaction(producer, "t", "before")
    producer.begin()
    producer.send("t", "open")
    producer.commit_offset("g", "t", 7)

    server.kill()
    server.start()
    assert read(server, "t", count=1) == ["before"]
    producer.send("t", "after")
    producer.commit()

    assert read(server, "t", count=3) == ["after", "before", "open"]
    assert committed_offset(server, "g", "t") == 7


def test_producers_go_on_while_the_transaction_version_changes(make_server: MakeServer, make_producer: MakeProducer) -> None:
    server = make_server({"transaction.state.log.num.partitions": "1"})
    create_topic(server, "t")
    old = make_producer(server, "old")
    old.init()
    run_transaction(old, "t", "old at first")

    for level, kind in ((0, SAFE_DOWNGRADE), (1, UPGRADE), (2, UPGRADE)):
        change_feature(server, "transaction.version", level, kind)
        run_transaction(old, "t", f"old at {level}")
        run_transaction(old, "t", f"old hidden at {level}", is_committed=False)
        new = make_producer(server, "new")
        new.init()
        run_transaction(new, "t", f"new hidden at {level}", is_committed=False)
        run_transaction(new, "t", f"new at {level}")

    visible = [f"{who} at {level}" for who in ("new", "old") for level in (0, 1, 2)]
    assert read(server, "t", count=7) == sorted([*visible, "old at first"])


def change_feature(server: ServerProcess, name: str, level: int, kind: int) -> None:
    update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    with WireClient(server.host, server.port) as client:
        response = client.request(UpdateFeaturesRequest(feature_updates=[update]), 1)
    assert response.error_code == 0, response
