"""Admin operations: topics, partitions, configs of every kind, reassignments, elections, records that are deleted, groups' offsets; what is
legal and what is not. Topics, offsets and configs are compared after each step, all descriptions after each seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from tests.peers.differential import admin_steps as steps
from tests.peers.differential.admin_configs import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    LOGGER_CONFIGS,
    METRICS_CONFIGS,
    TOPIC_CONFIGS,
    Configs,
)
from tests.peers.differential.admin_session import GROUPS, SUBSCRIPTIONS, AdminSession
from tests.peers.differential.admin_steps import NewTopic, Operation, Resource
from tests.peers.differential.broker_settings import BROKER_SETTINGS
from tests.peers.differential.fuzzer import Step
from tests.support.process import ServerProcess

STEP_COUNTS = (8, 30)
TOPICS = ("a", "b", "c.d", "c_d", "e")
"""Two of them collide in the names of metrics."""
BAD_NAMES = ("", ".", "..", "a/b", "n" * 250, "none")
ASSIGNMENTS: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...] = (
    ((0, (1,)),), ((0, (1,)), (1, (1,))), ((1, (1,)),), ((0, (1, 1)),), ((0, (1, 2)),), ((0, (7,)),), ((0, ()),), ((-1, (1,)),),
    ((0, (1,)), (0, (1,))), ((1, (1,)), (0, (1,))), ((0, (1,)), (2, (1,))), ((0, (-1,)),), ((0, (1,)), (1, ())), ((0, (1,)), (1, (1, 2))),
)  # fmt: skip
MORE_ASSIGNMENTS: tuple[tuple[tuple[int, ...], ...], ...] = ((), ((1,),), ((1,), (1,)), ((1, 1),), ((7,),), ((),), ((1,), ()), ((1, 2),))
REPLICAS: tuple[tuple[int, ...] | None, ...] = ((1,), (1,), None, (), (7,), (1, 1), (1, 2), (-1,))
FEATURES = (
    ("metadata.version", 25, 1), ("metadata.version", 7, 1), ("metadata.version", 7, 2), ("metadata.version", 999, 1),
    ("metadata.version", 0, 1), ("kraft.version", 1, 1), ("kraft.version", 9, 1), ("no.such", 1, 1), ("group.version", 0, 2),
    ("group.version", 1, 1), ("group.version", 9, 1), ("transaction.version", 2, 1), ("transaction.version", 0, 2),
    ("group.version", 0, 1), ("group.version", 1, 7), ("group.version", -1, 1), ("share.version", 1, 1), ("streams.version", 1, 1),
    ("eligible.leader.replicas.version", 1, 1), ("", 1, 1),
)  # fmt: skip


class AdminFuzzer:
    """See the module's docstring."""

    name = "admin"
    settings: Mapping[str, str] = BROKER_SETTINGS

    def steps(self, seed: int) -> list[Step]:
        chosen = random.Random(f"{self.name} {seed}")
        draw = _Draw(chosen)
        made = [draw.good_topics() for _ in range(chosen.randint(1, 2))]
        return [*made, *(draw.step() for _ in range(chosen.randint(*STEP_COUNTS)))]

    def begin(self, server: ServerProcess, namespace: str) -> AdminSession:
        return AdminSession(server, namespace)


class _Draw:
    """Draws one step after the other."""

    def __init__(self, chosen: random.Random) -> None:
        self._chosen = chosen

    def step(self) -> Step:
        kinds = {
            self._create: 14, self._delete: 8, self._create_partitions: 10, self._replace: 8, self._alter: 24, self._describe_configs: 8,
            self._reassign: 6, self._list_reassignments: 2, self._elect: 5, self._records: 10, self._describe: 10, self._groups: 10,
            self._features: 3, self._directories: 4,
        }  # fmt: skip
        return self._chosen.choices(list(kinds), list(kinds.values()))[0]()

    def _is(self, share: float) -> bool:
        return self._chosen.random() < share

    def _topic(self, bad: float = 0.1) -> str:
        return self._chosen.choice(BAD_NAMES if self._is(bad) else TOPICS)

    def _few(self, draw: Any, most: int = 3) -> tuple[Any, ...]:
        """Mostly one; now and then the same twice."""
        count = self._chosen.choices(range(most + 1), (1, 20, *([5] * (most - 1))))[0]
        drawn = [draw() for _ in range(count)]
        if drawn and self._is(0.06):
            drawn.append(drawn[0])
        return tuple(drawn)

    # Topics.

    def good_topics(self) -> Step:
        names = self._chosen.sample(TOPICS, 2)
        return steps.CreateTopics(tuple(NewTopic(name, self._chosen.randint(1, 3)) for name in names))

    def _create(self) -> Step:
        version = self._chosen.choices((7, 6, 5, 4, 2), (10, 1, 1, 1, 1))[0]
        return steps.CreateTopics(self._few(self._new_topic), self._is(0.15), version)

    def _new_topic(self) -> NewTopic:
        chosen = self._chosen
        configs = tuple((key, value) for key, value in self._configs(TOPIC_CONFIGS)) if self._is(0.5) else ()
        if self._is(0.2):
            partitions, replicas = chosen.choice(((-1, -1), (-1, -1), (1, -1), (-1, 1), (1, 1)))
            return NewTopic(self._topic(), partitions, replicas, chosen.choice(ASSIGNMENTS), configs)
        partitions = chosen.choices((1, 2, 3, -1, 0, -2), (10, 5, 3, 3, 1, 1))[0]
        replicas = chosen.choices((1, -1, 0, -2, 2), (20, 5, 1, 1, 1))[0]
        return NewTopic(self._topic(), partitions, replicas, (), configs)

    def _delete(self) -> Step:
        if self._is(0.3):
            return steps.DeleteTopics(self._few(self._topic), version=self._chosen.choice((1, 4, 5)))
        kind = self._chosen.random()
        if kind < 0.45:
            return steps.DeleteTopics(self._few(self._topic))
        if kind < 0.8:
            return steps.DeleteTopics((), self._few(self._topic))
        return steps.DeleteTopics(self._few(self._topic), self._few(self._topic), self._few(self._topic) if self._is(0.3) else ())

    def _create_partitions(self) -> Step:
        return steps.CreatePartitions(self._few(self._more_partitions), self._is(0.15), self._chosen.choice((3, 3, 2, 1, 0)))

    def _more_partitions(self) -> tuple[str, int, tuple[tuple[int, ...], ...] | None]:
        count = self._chosen.choices((1, 2, 3, 4, 5, 0, -1), (2, 4, 4, 4, 2, 1, 1))[0]
        return self._topic(), count, self._chosen.choice(MORE_ASSIGNMENTS) if self._is(0.3) else None

    def _describe(self) -> Step:
        chosen = self._chosen
        kind = chosen.random()
        if kind < 0.4:
            cursor = (self._topic(0.1), chosen.choice((0, 1, 2, 9, -1))) if self._is(0.4) else None
            return steps.DescribeTopicPartitions(self._few(self._topic, 4) or TOPICS, chosen.choice((2000, 2000, 3, 2, 1, 0, -1)), cursor)
        if kind < 0.75:
            version = chosen.choice((13, 13, 12, 11, 9, 7, 4, 1, 0))
            topics = self._few(self._topic, 4) if version < 12 or self._is(0.6) else ()
            return steps.Metadata(topics, () if topics or version < 12 else self._few(lambda: self._topic(0.03)), version)
        if kind < 0.9:
            kinds = chosen.choice(((), (2,), (4,), (16, 32), (8,), (0,), (99,)))
            return steps.ListConfigResources(kinds) if self._is(0.8) else steps.ListConfigResources(version=0)
        version = chosen.choice((2, 1, 0))
        return steps.DescribeCluster(chosen.choice((1, 1, 2, 0, 9)) if version else 1, version == 2 and self._is(0.3), version)

    # Configs.

    def _resource(self) -> tuple[int, str, Configs]:
        chosen = self._chosen
        kind = chosen.choices(
            (Resource.TOPIC, Resource.BROKER, Resource.GROUP, Resource.METRICS, Resource.LOGGER, 0), (40, 25, 8, 6, 2, 1)
        )[0]
        match kind:
            case Resource.TOPIC:
                return int(kind), self._topic(), TOPIC_CONFIGS
            case Resource.BROKER:
                return int(kind), chosen.choices(("1", "", "7", "x"), (8, 8, 1, 1))[0], BROKER_CONFIGS
            case Resource.GROUP:
                return int(kind), chosen.choice((*GROUPS, *GROUPS, "")), GROUP_CONFIGS
            case Resource.METRICS:
                return int(kind), chosen.choice((*SUBSCRIPTIONS, *SUBSCRIPTIONS, "")), METRICS_CONFIGS
        return int(kind), chosen.choice(("1", "1", "", "7")), LOGGER_CONFIGS

    def _configs(self, configs: Configs) -> tuple[tuple[str, str | None], ...]:
        drawn: tuple[tuple[str, str | None], ...] = self._few(lambda: self._config(configs))
        return drawn

    def _config(self, configs: Configs) -> tuple[str, str | None]:
        key = self._chosen.choice(tuple(configs))
        return key, None if self._is(0.02) else self._chosen.choice(configs[key])

    def _replace(self) -> Step:
        def resource() -> Any:
            kind, name, configs = self._resource()
            return kind, name, self._configs(configs)

        # Kafka never answers where a broker stands there twice.
        resources = {each[:2]: each for each in self._few(resource)}
        return steps.AlterConfigs(tuple(resources.values()), self._is(0.15), self._chosen.choice((2, 2, 1, 0)))

    def _alter(self) -> Step:
        def resource() -> Any:
            kind, name, configs = self._resource()
            return kind, name, self._few(lambda: self._change(configs))

        return steps.IncrementalAlterConfigs(self._few(resource), self._is(0.15), self._chosen.choice((1, 1, 0)))

    def _change(self, configs: Configs) -> tuple[str, Operation, str | None]:
        key, value = self._config(configs)
        operations = (Operation.SET, Operation.DELETE, Operation.APPEND, Operation.SUBTRACT)
        lists = any(part in key for part in ("policy", "replicas", "metrics", "match", "reporters"))
        operation = self._chosen.choices(operations, (10, 6, 12, 12) if lists else (20, 6, 1, 1))[0]
        return key, operation, None if operation is Operation.DELETE and self._is(0.7) else value

    def _describe_configs(self) -> Step:
        def resource() -> tuple[int, str]:
            kind, name, _ = self._resource()
            return kind, name if kind != Resource.LOGGER else "7"

        keys = None
        if self._is(0.5):
            known = (*TOPIC_CONFIGS, *BROKER_CONFIGS, *GROUP_CONFIGS, *METRICS_CONFIGS)
            keys = tuple(self._chosen.choice(known) for _ in range(self._chosen.randint(0, 8)))
        version = self._chosen.choice((4, 4, 3, 2, 1))
        return steps.DescribeConfigs(self._few(resource), keys, self._is(0.7), version)

    # Partitions.

    def _partitions(self) -> steps.Partitions:
        return self._few(lambda: (self._topic(), self._few(self._index)))

    def _index(self) -> int:
        return self._chosen.choices((0, 1, 2, 9, -1), (10, 6, 3, 1, 1))[0]

    def _reassign(self) -> Step:
        version = self._chosen.choice((1, 1, 0))
        replicas = self._chosen.choice
        return steps.Reassign(self._few(lambda: (self._topic(), self._index(), replicas(REPLICAS))), version == 0 or self._is(0.8), version)

    def _list_reassignments(self) -> Step:
        return steps.ListReassignments(None if self._is(0.3) else self._partitions())

    def _elect(self) -> Step:
        version = self._chosen.choice((2, 2, 1, 0))
        return steps.ElectLeaders(self._partitions(), self._chosen.choice((0, 1)) if version else 0, version)

    def _records(self) -> Step:
        if self._is(0.6):
            return steps.Produce(self._topic(0.05), self._index(), self._chosen.choice((1, 2, 10)))
        offset = self._chosen.choice
        asked = self._few(lambda: (self._topic(), self._index(), offset((0, 1, 2, 5, -1, -1, -2, 99))))
        return steps.DeleteRecords(asked, self._chosen.choice((2, 1, 0)))

    def _directories(self) -> Step:
        if self._is(0.75):
            return steps.DescribeLogDirs(self._partitions(), self._chosen.choice((5, 4, 3, 2, 1)))
        return steps.AlterReplicaLogDirs(self._partitions(), version=self._chosen.choice((2, 1)))

    # Groups, features.

    def _groups(self) -> Step:
        chosen = self._chosen
        group = chosen.choice((*GROUPS, *GROUPS, "")) if self._is(0.2) else chosen.choice(GROUPS)
        kind = chosen.random()
        if kind < 0.5:
            return steps.Commit(group, self._topic(), self._index(), chosen.choice((0, 5, -1, -2)))
        if kind < 0.6:
            return steps.FetchOffsets(group)
        if kind < 0.8:
            return steps.DeleteOffsets(group, self._partitions())
        return steps.DeleteGroups(self._few(lambda: chosen.choice((*GROUPS, ""))), chosen.choice((2, 1, 0)))

    def _features(self) -> Step:
        return steps.UpdateFeatures(self._few(lambda: self._chosen.choice(FEATURES)), self._chosen.choice((2, 1)))
