"""What a server-side assignor is given, and what it is (Kafka's GroupSpec and ConsumerGroupPartitionAssignor).

An assignor is a pure function: the order of `members` and what they were assigned before decide all that the rules leave open.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple

Partitions = Mapping[bytes, frozenset[int]]
"""Topic id → partitions."""


class MemberSpecification(NamedTuple):
    """`topic_ids`, in ascending order, are those of the existing topics that the member subscribes to."""

    instance_id: str | None
    topic_ids: tuple[bytes, ...]
    partitions: Partitions


class GroupSpecification(NamedTuple):
    """`partition_counts` has every topic that a member subscribes to; `is_homogeneous` says that all subscribe to the same ones."""

    members: Mapping[str, MemberSpecification]
    partition_counts: Mapping[bytes, int]
    is_homogeneous: bool


Assigning = Generator[None, None, dict[str, Partitions]]
"""Work that yields between pieces well under a millisecond. It returns the new target of every member; one that is not in it has none. A
target that is unchanged may be the very object it was."""

Assignor = Callable[[GroupSpecification], Assigning]

PARTITIONS_PER_ELEMENT = 10
"""Partitions that count as one element of a piece (broker/loop/pieces.py)."""

PARTITIONS_PER_PIECE = 1_000
"""Partitions of a topic that are looked at between two yields, at 0.1 to 0.2 µs each."""
