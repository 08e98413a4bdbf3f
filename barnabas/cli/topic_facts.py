"""What is asked about single topics, without making them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import TopicCollection

from barnabas.cli.connection import Connection
from barnabas.cli.progress import Bar

SEEN_WAIT_S = 5.0
SEEN_POLL_S = 0.02


def check_topic(connection: Connection, name: str) -> None:
    """Raises RefusedError if it is not there, or nothing may be known of it."""
    connection.results(connection.admin.describe_topics(TopicCollection([name]), request_timeout=connection.timeout_s))


def wait_until_seen(connection: Connection, is_seen: Callable[[dict[str, Any]], bool]) -> None:
    """Returns once the metadata of all topics show a change that the controller has made, so that the next command sees it. Apache Kafka's
    brokers learn of it after its answer. A broker that takes longer than SEEN_WAIT_S is left alone: the change is made."""
    deadline = time.monotonic() + SEEN_WAIT_S
    with Bar("waiting until it is seen") as bar:
        while not is_seen(dict(connection.metadata().topics)) and time.monotonic() < deadline:
            bar.show(0, None)
            time.sleep(SEEN_POLL_S)
