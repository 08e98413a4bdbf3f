"""Metadata version 7: which broker leads a partition, and in which leader epoch."""

from __future__ import annotations

import struct
from typing import NamedTuple

from ._wire import Login, ask, string

METADATA, VERSION = 3, 7
TIMEOUT_S = 5.0


class Leader(NamedTuple):
    """What one broker knows of a partition's leader. `node_id` is -1 while there is none. The highest `epoch` is the newest word."""

    epoch: int
    node_id: int


def find_leader(address: tuple[str, int], topic: str, partition: int, login: Login | None = None) -> Leader | None:
    """None where the broker does not know the partition. Raises OSError where it does not answer."""
    answer = _Reader(ask(address, METADATA, VERSION, struct.pack(">i", 1) + string(topic) + struct.pack(">?", False), TIMEOUT_S, login))
    answer.take("i")  # throttle time
    for _ in range(answer.take("i")):
        answer.take("i")  # a broker's id, host, port, rack
        answer.skip_string()
        answer.take("i")
        answer.skip_string()
    answer.skip_string()  # cluster id
    answer.take("i")  # controller
    for _ in range(answer.take("i")):  # the one topic: error, name, whether it is internal
        answer.take("h")
        answer.skip_string()
        answer.take("?")
        for _ in range(answer.take("i")):
            answer.take("h")  # LEADER_NOT_AVAILABLE goes with leader -1
            index, node_id, epoch = answer.take("i"), answer.take("i"), answer.take("i")
            for _ in ("replicas", "ISR", "offline replicas"):
                answer.skip(4 * answer.take("i"))
            if index == partition:
                return Leader(epoch, node_id)
    return None


class _Reader:
    """Takes fields from an answer, one after the other."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._position = 0

    def take(self, kind: str) -> int:
        (value,) = struct.unpack_from(f">{kind}", self._answer, self._position)
        self._position += struct.calcsize(f">{kind}")
        return int(value)

    def skip(self, size_bytes: int) -> None:
        self._position += size_bytes

    def skip_string(self) -> None:
        """A string or null, whose size is -1."""
        self.skip(max(self.take("h"), 0))
