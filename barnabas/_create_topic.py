"""CreateTopics version 4: the first that takes -1 for the broker's default number of partitions."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from ._errors import BrokerError
from ._wire import Login, ask, string

CREATE_TOPICS, VERSION = 19, 4
TIMEOUT_S = 30.0
TOPIC_ALREADY_EXISTS = 36
DEFAULT = -1  # partitions and replicas as the broker's settings say


def create_topic(
    address: tuple[str, int],
    name: str,
    partitions: int | None,
    config: Mapping[str, str],
    *,
    replication_factor: int | None,
    exist_ok: bool,
    login: Login | None = None,
) -> None:
    """Returns once the topic is there; None partitions or replicas are the broker's default.

    Raises BrokerError where the broker refuses, OSError where it does not answer.
    """
    counts = [DEFAULT if count is None else count for count in (partitions, replication_factor)]
    body = struct.pack(">i", 1) + string(name) + struct.pack(">ihi", *counts, 0)
    body += struct.pack(">i", len(config)) + b"".join(string(key) + string(value) for key, value in config.items())
    body += struct.pack(">i?", int(TIMEOUT_S * 1000), False)
    error, message = _parse(ask(address, CREATE_TOPICS, VERSION, body, TIMEOUT_S, login))
    if error and not (error == TOPIC_ALREADY_EXISTS and exist_ok):
        raise BrokerError(f"cannot create topic {name}: {message or f'error {error}'}")


def partitions_by_topic(topics: Mapping[str, int] | Iterable[str]) -> dict[str, int | None]:
    """Topics as users name them: with their partitions, or names alone for the broker's default. Raises TypeError for anything else."""
    if isinstance(topics, str):
        raise TypeError(f'topics are {{"{topics}": 3}} or ["{topics}"], not a string')
    partitions_by_name = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics)
    for name, partitions in partitions_by_name.items():
        if not isinstance(name, str) or not (partitions is None or isinstance(partitions, int)):
            raise TypeError(f"topics are names with a number of partitions, not {name!r}: {partitions!r}")
    return partitions_by_name


def _parse(answer: bytes) -> tuple[int, str]:
    """The one topic's error code and message: throttle time, topics of name, error, message."""
    (name_size,) = struct.unpack_from(">h", answer, 8)
    error, message_size = struct.unpack_from(">hh", answer, 10 + name_size)
    return error, answer[14 + name_size : 14 + name_size + max(message_size, 0)].decode(errors="replace")
