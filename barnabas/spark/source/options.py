"""The options of the source: those of Spark's own Kafka source, checked before anything is read.

Source: org.apache.spark.sql.kafka010.KafkaSourceProvider.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..client.cluster import Cluster, open_cluster, parse_servers
from ..client.fetching import EARLIEST, LATEST, Isolation
from ..client.security import SECURITY_OPTIONS, Security, read_security
from ..errors import OptionError
from ..options import number, truth

SERVERS, ISOLATION = "kafka.bootstrap.servers", "kafka.isolation.level"
CHOICES = ("subscribe", "subscribePattern", "assign")
KNOWN = (
    SERVERS, ISOLATION, *CHOICES, "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp", "includeHeaders",
    "failOnDataLoss", "maxOffsetsPerTrigger", "rowsPerTask", "group",
)  # fmt: skip
OF_SPARK = ("path",)

Bound = int | dict[str, dict[int, int]]
"""EARLIEST, LATEST, or offsets by topic and partition, where EARLIEST and LATEST may stand too."""


class SourceOptions(NamedTuple):
    """`starting_ms` and `ending_ms` count before `starting` and `ending`. `rows_per_task`: a longer range becomes several tasks; None:
    one task a partition. `group`: where the progress of a stream is noted."""

    servers: str
    security: Security
    topics: tuple[str, ...]
    pattern: str | None
    assigned: Mapping[str, tuple[int, ...]] | None
    isolation: Isolation
    starting: Bound | None
    ending: Bound
    starting_ms: int | None
    ending_ms: int | None
    has_headers: bool
    fails_on_data_loss: bool
    offsets_per_trigger: int | None
    rows_per_task: int | None
    group: str | None

    def open(self) -> Cluster:
        """The cluster, whose connections stay open."""
        return open_cluster(self.servers, self.security)

    def begins_at_end(self, topic: str, partition: int) -> bool:
        """Whether a new query may begin where the partition ends at that moment."""
        if self.starting_ms is not None or self.starting is None:
            return True
        bound = self.starting if isinstance(self.starting, int) else self.starting.get(topic, {}).get(partition)
        return bound == LATEST

    def chosen(self, cluster: Cluster) -> dict[str, list[int]]:
        """The partitions to read, by topic. OptionError if a topic that is named does not exist."""
        names = list(self.topics) if self.assigned is None else list(self.assigned)
        if self.pattern is not None:
            expression = re.compile(self.pattern)
            names = [name for name in cluster.topic_names() if expression.fullmatch(name)]
        cluster.refresh(names)
        found: dict[str, list[int]] = {}
        for name in names:
            topic = cluster.topic(name)
            if topic is None:
                raise OptionError(f"topic {name} does not exist")
            existing = sorted(topic.leaders)
            if self.assigned is not None and (missing := set(self.assigned[name]) - set(existing)):
                raise OptionError(f"topic {name} has no partition {min(missing)}: it has {len(existing)}")
            found[name] = existing if self.assigned is None else sorted(self.assigned[name])
        return found


def read_options(texts: Mapping[str, str]) -> SourceOptions:
    """OptionError names the option that is missing, unknown or wrong."""
    known = {key.lower(): key for key in (*KNOWN, *SECURITY_OPTIONS)}
    options: dict[str, str] = {}
    for key, text in texts.items():
        if key.lower() in OF_SPARK:
            continue
        if key.lower() not in known:
            raise OptionError(f"unknown option {key!r}: the source has {', '.join(KNOWN)}, and those of TLS and SASL")
        options[known[key.lower()]] = text
    servers = options.get(SERVERS, "")
    parse_servers(servers)
    given = [choice for choice in CHOICES if choice in options]
    if len(given) != 1:
        raise OptionError(f"set one of the options {', '.join(CHOICES)}: {' and '.join(given) or 'none'} is set")
    isolation = options.get(ISOLATION, "read_committed").upper()
    if isolation not in Isolation.__members__:
        raise OptionError(f"{ISOLATION} is {isolation.lower()!r}: it is read_committed or read_uncommitted")
    pattern = options.get("subscribePattern")
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise OptionError(f"subscribePattern is {pattern!r}: {error}") from error
    group = options.get("group")
    if group is not None and not group.strip():
        raise OptionError("group is empty: it is the name of the group in which the progress is noted")
    starting = options.get("startingOffsets")
    return SourceOptions(
        servers=servers,
        security=read_security(options),
        topics=tuple(filter(None, (name.strip() for name in options.get("subscribe", "").split(",")))),
        pattern=pattern,
        assigned=None if "assign" not in options else _assigned(options["assign"]),
        isolation=Isolation[isolation],
        starting=None if starting is None else _bound("startingOffsets", starting),
        ending=_bound("endingOffsets", options.get("endingOffsets", "latest")),
        starting_ms=number(options, "startingTimestamp", 0),
        ending_ms=number(options, "endingTimestamp", 0),
        has_headers=truth(options, "includeHeaders", default=False),
        fails_on_data_loss=truth(options, "failOnDataLoss", default=True),
        offsets_per_trigger=number(options, "maxOffsetsPerTrigger", 1),
        rows_per_task=number(options, "rowsPerTask", 1),
        group=group,
    )


def _bound(key: str, text: str) -> Bound:
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    if named is not None:
        return named
    told = _json(key, text)
    try:
        return {topic: {int(partition): int(offset) for partition, offset in offsets.items()} for topic, offsets in told.items()}
    except (AttributeError, TypeError, ValueError):
        raise OptionError(f'{key} is {text!r}: it is earliest, latest, or as {{"topic": {{"0": 23, "1": -2}}}}') from None


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    told = _json("assign", text)
    try:
        return {topic: tuple(int(partition) for partition in partitions) for topic, partitions in told.items()}
    except (AttributeError, TypeError, ValueError):
        raise OptionError(f'assign is {text!r}: it is as {{"topic": [0, 1]}}') from None


def _json(key: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"{key} is {text!r}, which is no JSON: {error}") from error
