"""KIP-848 groups: random heartbeats of a few members with fixed ids, offsets, configs, topics that come and go, classic members; and what
descriptions of the group show after each.

Which of several equal members gets which of several equal partitions is left to hash maps by Kafka's uniform assignor, and to the
members' order here. So most seeds have the range assignor, which sorts; `UNIFORM_SHARE` of them have votes for either one, on a single
topic and with members that join in the order that hash maps have them in. Their ids are fixed, so no classic members are among them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tests.peers.differential.broker_settings import BROKER_SETTINGS
from tests.peers.differential.consumer_group_session import ConsumerGroupSession
from tests.peers.differential.consumer_group_steps import (
    AlterGroup,
    Beat,
    ClassicBeat,
    ClassicJoin,
    ClassicLeave,
    ClassicSync,
    Commit,
    CreateTopic,
    DeleteGroup,
    DeleteOffsets,
    DeleteTopic,
    Epoch,
    FetchOffsets,
    GrowTopic,
    MemberId,
    Owned,
)
from tests.peers.differential.fuzzer import Step
from tests.support.process import ServerProcess

STEP_COUNTS = (8, 35)
MEMBERS = ("`", "a", "b", "c")
"""Java's hashes of these strings end in 0, 1, 2 and 3, so that every hash map has them in this order."""
STATIC_MEMBERS = {"a": "i", "b": "j", "d": "i"}
"""Some of their instance ids: d takes the place of a."""
CLASSIC_MEMBERS = {"dynamic": None, "static": "k"}
"""With their instance ids. Members are assigned in the order of these, then of their ids: no two ids that the broker draws."""
TOPICS = ("a", "b", "c", "new")
UNIFORM_SHARE = 0.15
CLASSIC_SHARE = 0.35

SESSION_TIMEOUT, HEARTBEAT_INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
CONFIGS = (
    (SESSION_TIMEOUT, "50000"), (SESSION_TIMEOUT, "1"), (SESSION_TIMEOUT, None), (HEARTBEAT_INTERVAL, "700"), (HEARTBEAT_INTERVAL, "900"),
    (HEARTBEAT_INTERVAL, "2"), (HEARTBEAT_INTERVAL, None), ("no.such", "1"), ("share.session.timeout.ms", "50000"),
)  # fmt: skip
EXPRESSIONS = ("a|b", ".", "[ac]", "x*", "", "(", "new", "[a-z]+")


class ConsumerGroupFuzzer:
    """See the module's docstring."""

    name = "consumer-groups"
    settings: Mapping[str, str] = BROKER_SETTINGS

    def steps(self, seed: int) -> list[Step]:
        chosen = random.Random(f"{self.name} {seed}")
        kind = chosen.random()
        count = chosen.randint(*STEP_COUNTS)
        if kind < UNIFORM_SHARE:
            return _uniform_steps(chosen, count)
        draw = _Draw(chosen, with_classic=kind < UNIFORM_SHARE + CLASSIC_SHARE)
        return [step for _ in range(count) for step in draw.steps()]

    def begin(self, server: ServerProcess, namespace: str) -> ConsumerGroupSession:
        return ConsumerGroupSession(server, namespace)


def _uniform_steps(chosen: random.Random, count: int) -> list[Step]:
    """Joins in the order of the hash map, then heartbeats with votes."""
    members = MEMBERS[: chosen.randint(1, len(MEMBERS))]
    fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ("c",)}
    joins = [Beat(each, Epoch.JOIN, Owned.NOTHING, fields={**fields, "server_assignor": _assignor(chosen)}) for each in members]
    rest: list[Step] = []
    for _ in range(count):
        vote = {"server_assignor": _assignor(chosen)} if chosen.random() < 0.3 else {}
        rest.append(
            Beat(chosen.choice(members), chosen.choice((Epoch.PRESENT, Epoch.PRESENT, Epoch.PREVIOUS)), Owned.ASSIGNED, fields=vote)
        )
    return [*joins, *rest]


def _assignor(chosen: random.Random) -> str | None:
    return chosen.choice((None, "range", "uniform"))


class _Draw:
    """Draws one step after the other."""

    def __init__(self, chosen: random.Random, *, with_classic: bool) -> None:
        self._chosen = chosen
        self._with_classic = with_classic
        self._static = {name for name in MEMBERS[1:] + ("d",) if name in STATIC_MEMBERS and chosen.random() < 0.4}
        self._members = (*MEMBERS, "d") if "d" in self._static else MEMBERS

    def steps(self) -> list[Step]:
        kinds = (self._join, self._beat, self._offsets, self._admin, self._classic)
        return self._chosen.choices(kinds, (25, 50, 14, 8, 25 if self._with_classic else 0))[0]()

    def _topics(self, most: int = 2, least: int = 1) -> tuple[str, ...]:
        return tuple(sorted(self._chosen.sample(TOPICS, self._chosen.randint(least, most))))

    def _join(self) -> list[Step]:
        chosen, member = self._chosen, self._chosen.choice(self._members)
        fields: dict[str, Any] = {"rebalance_timeout_ms": 60_000}
        if member in self._static:
            fields["instance_id"] = STATIC_MEMBERS[member]
        if chosen.random() < 0.7:
            fields["subscribed_topic_names"] = self._topics()
        if "subscribed_topic_names" not in fields or chosen.random() < 0.1:
            fields["subscribed_topic_regex"] = chosen.choice(EXPRESSIONS)
        if chosen.random() < 0.1:
            fields["server_assignor"] = chosen.choice(("range", "no.such", ""))
        if chosen.random() < 0.05:
            fields["rack_id"] = chosen.choice(("r", "s", ""))
        if chosen.random() < 0.03:
            fields[chosen.choice(("rebalance_timeout_ms", "instance_id", "subscribed_topic_names"))] = None
            fields["rebalance_timeout_ms"] = fields["rebalance_timeout_ms"] or -1
        version = 0 if "subscribed_topic_regex" not in fields and chosen.random() < 0.1 else 1
        owned = chosen.choices((Owned.NOTHING, Owned.UNSAID, Owned.ASSIGNED), (30, 1, 2))[0]
        return [Beat(member, Epoch.JOIN, owned, version, fields)]

    def _beat(self) -> list[Step]:
        chosen, member = self._chosen, self._chosen.choice(self._members)
        epochs = (Epoch.PRESENT, Epoch.PREVIOUS, Epoch.LEAVE, Epoch.LEAVE_FOR_A_WHILE, Epoch.AHEAD, Epoch.BELOW_ALL)
        epoch = chosen.choices(epochs, (60, 6, 5, 5 if member in self._static else 1, 1, 1))[0]
        fields: dict[str, Any] = {}
        if member in self._static and (epoch is not Epoch.PRESENT or chosen.random() < 0.5):
            fields["instance_id"] = STATIC_MEMBERS[member]
        if chosen.random() < 0.12:
            fields["subscribed_topic_names"] = self._topics(least=0)
        if chosen.random() < 0.08:
            fields["subscribed_topic_regex"] = chosen.choice(EXPRESSIONS)
        if chosen.random() < 0.03:
            fields["rebalance_timeout_ms"] = chosen.choice((70_000, 0))
        kinds = (Owned.UNSAID, Owned.ASSIGNED, Owned.BEFORE, Owned.NOTHING, Owned.FOREIGN)
        return [Beat(member, epoch, chosen.choices(kinds, (20, 40, 5, 4, 2))[0], fields=fields)]

    def _offsets(self) -> list[Step]:
        chosen = self._chosen
        member = chosen.choice((*self._members, *(CLASSIC_MEMBERS if self._with_classic else ()), "nobody"))
        epoch = chosen.choices((Epoch.PRESENT, Epoch.PREVIOUS, Epoch.AHEAD, Epoch.LEAVE), (10, 4, 1, 1))[0]
        kind = chosen.random()
        if kind < 0.5:
            instance_id = STATIC_MEMBERS.get(member) if chosen.random() < 0.2 else None
            metadata = chosen.choice(("", "m", None))
            member = "" if chosen.random() < 0.1 else member
            version = chosen.choices((10, 9, 8, 7), (4, 8, 2, 1))[0]
            topic, partition, offset = chosen.choice(TOPICS), chosen.choice((0, 1, 9)), chosen.choice((0, 5, 7, -1))
            return [Commit(member, epoch, topic, partition, offset, version, metadata, instance_id)]
        if kind < 0.9:
            topics = None if chosen.random() < 0.3 else self._topics(3)
            version = chosen.choices((10, 9, 8, 7, 2), (4, 8, 1, 1, 1))[0]
            return [FetchOffsets(None if chosen.random() < 0.3 else member, epoch, version, topics)]
        return [DeleteOffsets(chosen.choice(TOPICS), chosen.choice((0, 1, 9)))]

    def _admin(self) -> list[Step]:
        chosen = self._chosen
        kind = chosen.random()
        if kind < 0.4:
            return [AlterGroup(*chosen.choice(CONFIGS))]
        if kind < 0.5:
            return [DeleteGroup()]
        topic = chosen.choice(TOPICS)
        if kind < 0.65:
            return [CreateTopic(topic, chosen.randint(1, 4))]
        if kind < 0.8:
            return [GrowTopic(topic, chosen.randint(2, 6))]
        return [DeleteTopic(topic), CreateTopic(topic, chosen.randint(1, 4))] if chosen.random() < 0.5 else [DeleteTopic(topic)]

    def _classic(self) -> list[Step]:
        chosen = self._chosen
        member = chosen.choice(tuple(CLASSIC_MEMBERS))
        instance_id = CLASSIC_MEMBERS[member]
        kind = chosen.random()
        if kind < 0.4:
            owned = chosen.choice((Owned.UNSAID, Owned.NOTHING, Owned.ASSIGNED, Owned.BEFORE))
            protocols = chosen.choice((("range",), ("range",), ("range",), ("cooperative-sticky", "range"), ("odd",)))
            member_id = chosen.choices((MemberId.KNOWN, MemberId.NONE, MemberId.UNKNOWN), (12, 2, 1))[0]
            join = ClassicJoin(member, member_id, self._topics(), chosen.choice((9, 9, 5)), instance_id, owned, protocols)
            return [join, join, ClassicSync(member)] if chosen.random() < 0.5 else [join]
        epoch = chosen.choices((Epoch.PRESENT, Epoch.PREVIOUS, Epoch.AHEAD), (12, 2, 1))[0]
        if kind < 0.6:
            return [ClassicSync(member, epoch, chosen.choice((5, 4, 3)))]
        if kind < 0.9:
            return [ClassicBeat(member, epoch, chosen.choice((4, 3)), instance_id if chosen.random() < 0.5 else None)]
        return [ClassicLeave(member, chosen.choice((5, 3, 2)), instance_id if chosen.random() < 0.5 else None)]
