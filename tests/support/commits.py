"""Commits and what a group has committed, through librdkafka as tests need it: right after a start too."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

RETRY_INTERVAL_S = 0.1
NOT_YET = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE)

Answer = TypeVar("Answer")


def committed(consumer: Consumer, partitions: Sequence[TopicPartition], timeout_s: float) -> list[TopicPartition]:
    """The offsets that the consumer's group has committed. Waits for the group's coordinator: `Consumer.committed` raises what a broker
    says that has just started, or has just heard that it leads the group."""
    return _once_there_is_a_coordinator(lambda: consumer.committed(list(partitions), timeout=timeout_s), timeout_s)


def commit(consumer: Consumer, offsets: Sequence[TopicPartition], timeout_s: float) -> None:
    """Commit these offsets. Waits in the same way."""
    _once_there_is_a_coordinator(lambda: consumer.commit(offsets=list(offsets), asynchronous=False), timeout_s)


def _once_there_is_a_coordinator(ask: Callable[[], Answer], timeout_s: float) -> Answer:
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except KafkaException as e:
            if e.args[0].code() not in NOT_YET or time.monotonic() > deadline_s:
                raise
        time.sleep(RETRY_INTERVAL_S)
