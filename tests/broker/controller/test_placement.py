from __future__ import annotations

import random
from collections import Counter

import pytest

from broker.controller.placement import place_replicas
from broker.metadata.image import BrokerImage
from protocol.errors import ErrorCode, KafkaError


def _broker(node_id: int, rack: str | None = None, *, is_fenced: bool = False) -> BrokerImage:
    return BrokerImage(node_id, {}, rack, 1, is_fenced)


def _place(brokers: list[BrokerImage], partitions: int, replicas: int) -> list[list[int]]:
    return list(place_replicas(brokers, partitions_count=partitions, replication_factor=replicas, random_source=random.Random(3)))


def test_one_broker_gets_everything() -> None:
    assert _place([_broker(1)], 4, 1) == [[1]] * 4


def test_leaders_are_spread_evenly() -> None:
    assignments = _place([_broker(node_id) for node_id in range(5)], 50, 3)

    assert all(len(set(replicas)) == 3 for replicas in assignments)
    assert set(Counter(replicas[0] for replicas in assignments).values()) == {10}


def test_replicas_of_a_partition_are_in_different_racks() -> None:
    racks = {node_id: f"rack-{node_id % 3}" for node_id in range(9)}

    assignments = _place([_broker(node_id, rack) for node_id, rack in racks.items()], 30, 3)

    assert all(len({racks[replica] for replica in replicas}) == 3 for replicas in assignments)


def test_a_fenced_broker_follows_but_does_not_lead() -> None:
    assignments = _place([_broker(1), _broker(2), _broker(3, is_fenced=True)], 12, 3)

    assert all(replicas[0] != 3 and 3 in replicas for replicas in assignments)


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        _place([_broker(1)], 1, 2)

    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_fenced_brokers_alone_are_refused() -> None:
    with pytest.raises(KafkaError, match="All brokers are currently fenced"):
        _place([_broker(1, is_fenced=True)], 1, 1)


DIRECTORIES = (bytes([1] * 16), bytes([2] * 16))


def _cordoned(node_id: int, *cordoned: bytes) -> BrokerImage:
    return _broker(node_id)._replace(log_dirs=DIRECTORIES, cordoned_log_dirs=cordoned)


def test_a_broker_gets_nothing_once_all_its_directories_are_cordoned() -> None:
    brokers = [_cordoned(1, *DIRECTORIES), _cordoned(2, DIRECTORIES[0]), _cordoned(3)]

    assert {broker for replicas in _place(brokers, 12, 2) for broker in replicas} == {2, 3}
    with pytest.raises(KafkaError, match="because only 2 broker"):
        _place(brokers, 1, 3)
    with pytest.raises(KafkaError, match="fenced, or have all their log directories cordoned"):
        _place(brokers[:1], 1, 1)


def test_directories_that_nobody_told_of_are_not_cordoned() -> None:
    without_directories = _broker(1)._replace(cordoned_log_dirs=())
    not_told = _broker(2)._replace(log_dirs=DIRECTORIES)

    assert sorted(_place([without_directories, not_told], 1, 2)[0]) == [1, 2]
