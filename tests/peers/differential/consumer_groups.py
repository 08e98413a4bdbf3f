"""KIP-848 groups: random heartbeats of a few members with fixed ids, and what a description of the group shows after each.

Which of several equal members gets which of several equal partitions is left to hash maps by Kafka's uniform assignor, and to the
members' order here. So most seeds have the range assignor, which sorts; `UNIFORM_SHARE` of them have votes for either one, on a single
topic and with members that join in the order that hash maps have them in.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tests.peers.differential.consumer_group_session import ConsumerGroupSession
from tests.peers.differential.consumer_group_steps import Beat, Epoch, Owned
from tests.peers.differential.fuzzer import Step
from tests.support.process import ServerProcess

STEP_COUNTS = (8, 30)
MEMBERS = ("`", "a", "b", "c")
"""Java's hashes of these strings end in 0, 1, 2 and 3, so that every hash map has them in this order."""


class ConsumerGroupFuzzer:
    """See the module's docstring."""

    name = "consumer-groups"
    settings: Mapping[str, str] = {"group.consumer.assignment.interval.ms": "0", "group.consumer.assignors": "range,uniform"}

    def steps(self, seed: int) -> list[Step]:
        chosen = random.Random(f"{self.name} {seed}")
        return [_beat(chosen) for _ in range(chosen.randint(*STEP_COUNTS))]

    def begin(self, server: ServerProcess, namespace: str) -> ConsumerGroupSession:
        return ConsumerGroupSession(server, namespace)


def _beat(chosen: random.Random) -> Beat:
    member = chosen.choice(MEMBERS)
    if chosen.random() < 0.3:
        topics = tuple(sorted(chosen.sample(("a", "b", "c"), chosen.randint(1, 2))))
        return Beat(member, Epoch.JOIN, owned=Owned.NOTHING, fields={"rebalance_timeout_ms": 60_000, "subscribed_topic_names": topics})
    epoch = chosen.choices((Epoch.PRESENT, Epoch.PREVIOUS, Epoch.LEAVE), (20, 2, 2))[0]
    fields: dict[str, Any] = {}
    if chosen.random() < 0.15:
        fields["subscribed_topic_names"] = tuple(sorted(chosen.sample(("a", "b", "c"), chosen.randint(0, 3))))
    return Beat(member, epoch, owned=chosen.choice((Owned.UNSAID, Owned.ASSIGNED, Owned.ASSIGNED)), fields=fields)
