"""Which topics and partitions an option names: a regular expression with commas, and kafka-get-offsets' --topic-partitions.

Source: org.apache.kafka.tools.filter.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from barnabas.cli.cluster_facts import Partition
from barnabas.cli.errors import CommandError

RULE = re.compile(r"(?P<topic>[^:,]*)(?::(?:(?P<only>\d*)|(?P<lowest>\d*)-(?P<end>\d*)))?")
ALL = ".*"

Chooses = Callable[[Partition], bool]


def include_list(text: str) -> re.Pattern[str]:
    """`a,b.*` are the topics whose whole name is a, or begins with b. Raises CommandError."""
    plain = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.compile(plain)
    except re.error as e:
        raise CommandError(f"{plain} is an invalid regex.") from e


def by_topic_and_partitions(topic: str, partitions: str) -> Chooses:
    """--topic, and --partitions 0,2, of which none are all. Raises CommandError."""
    pattern = include_list(topic)
    try:
        only = {int(number) for number in partitions.split(",")} if partitions else set()
    except ValueError as e:
        raise CommandError(f"--partitions expects a comma separated list of numeric partition ids, but received: {partitions}") from e
    return lambda partition: pattern.fullmatch(partition[0]) is not None and (not only or partition[1] in only)


def by_rules(text: str) -> Chooses:
    """`orders:0,pay.*:2-5,:7-`: a topic's name or none, and a partition, a range without its end, or none. Raises CommandError."""
    rules = [_rule(word) for word in text.split(",")]
    return lambda partition: any(rule(partition) for rule in rules)


def _rule(word: str) -> Chooses:
    found = RULE.fullmatch(word)
    if found is None:
        raise CommandError(f"Invalid rule specification: {word}")
    pattern = include_list(found["topic"] or ALL)
    first = int(found["only"] or found["lowest"] or 0)
    end = int(found["only"]) + 1 if found["only"] else int(found["end"]) if found["end"] else None
    return lambda partition: pattern.fullmatch(partition[0]) is not None and partition[1] >= first and (end is None or partition[1] < end)
