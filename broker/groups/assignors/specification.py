"""What a server-side assignor is given, and what it is (Kafka's GroupSpec and ConsumerGroupPartitionAssignor).

An assignor is a pure function: the order of `members` and what they were assigned before decide all that the rules leave open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


Assignor = Callable[[GroupSpecification], dict[str, Partitions]]
"""Returns the new target of every member; one that is not in it has none. A target that is unchanged may be the very object it was."""
