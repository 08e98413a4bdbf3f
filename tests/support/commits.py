"""What a group has committed, asked through librdkafka as tests need it: right after a restart too."""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

RETRY_INTERVAL_S = 0.1
NOT_YET = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE)


def committed(consumer: Consumer, partitions: Sequence[TopicPartition], timeout_s: float) -> list[TopicPartition]:
    """The offsets that the consumer's group has committed. Waits for the group's coordinator: `Consumer.committed` raises what a broker
    says that has just started, or has just heard that it leads the group."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return consumer.committed(list(partitions), timeout=timeout_s)
        except KafkaException as e:
            if e.args[0].code() not in NOT_YET or time.monotonic() > deadline_s:
                raise
        time.sleep(RETRY_INTERVAL_S)
