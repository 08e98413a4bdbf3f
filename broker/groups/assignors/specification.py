"""The input of a server-side assignor, and its type (Kafka's GroupSpec and ConsumerGroupPartitionAssignor).

An assignor is a pure function. Where its rules allow several results, the order of `members` and their previous assignment decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

Partitions = Mapping[bytes, frozenset[int]]
"""Topic id → partitions."""


class MemberSpecification(NamedTuple):
    """`topic_ids`, in ascending order, are the ids of the existing topics that the member subscribes to."""

    instance_id: str | None
    topic_ids: tuple[bytes, ...]
    partitions: Partitions


class GroupSpecification(NamedTuple):
    """`partition_counts` has every topic that a member subscribes to. `is_homogeneous`: all members subscribe to the same topics."""

    members: Mapping[str, MemberSpecification]
    partition_counts: Mapping[bytes, int]
    is_homogeneous: bool


Assignor = Callable[[GroupSpecification], dict[str, Partitions]]
"""Returns the new target of every member. A member that is not in it has an empty target. An unchanged target may be the same object."""
