"""The tables of properties against Apache Kafka 4.3.1's own ConfigDefs, and what it accepts of every numeric property.

Update modes, synonyms and the like are compared through DescribeConfigs, in tests/broker/metadata/test_with_kafka.py.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from config.properties import ConfigError, Property, PropertyType
from config.server import SERVER_PROPERTIES
from config.server_rules import server_config
from config.topic import TOPIC_PROPERTIES
from tests.support.kafka import java_command

BASE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
}
NUMBERS = {PropertyType.INT, PropertyType.LONG, PropertyType.SHORT, PropertyType.DOUBLE}
ALWAYS_TRIED = {
    "-2147483648",
    "-2",
    "-1",
    "0",
    "1",
    "2147483647",
    "2147483648",
    "9223372036854775808",
    " 5 ",
    "+3",
    "1e3",
    "0x10",
    "1f",
    "",
}

# Where the default here is another one; config/server_table.py says why.
OTHER_DEFAULTS = {"socket.listen.backlog.size", "socket.receive.buffer.bytes", "socket.send.buffer.bytes"}
# Rules between several settings of features that are not here, and settings that Kafka starts with but cannot serve with.
OTHER_RULES = re.compile(
    r"group\.(min|max)\.session\.timeout\.ms|group\.share\..*(sessions|locks|lock\.duration\.ms)|group\.streams\.num\.standby\.replicas"
    r"|socket\.(send|receive)\.buffer\.bytes|log\.cleaner\.threads|share\.coordinator\.state\.topic\.compression\.codec|broker\.id"
    r"|offsets\.topic\.segment\.bytes|transaction\.state\.log\.segment\.bytes"  # Kafka starts, and cannot create the topic
)


@dataclass
class Declared:
    """What the JVM said: the lines of both ConfigDefs by name, and one verdict for each case."""

    broker: dict[str, list[str]]
    topic: dict[str, list[str]]
    verdicts: list[str]


def numeric_cases() -> list[tuple[str, str]]:
    """Every numeric property with values at and around the ends of its range, and with text that may be no number."""
    cases = []
    for known in SERVER_PROPERTIES.values():
        if known.type in NUMBERS and not known.name.startswith("barnabas."):
            ends = {str(int(end) + step) for end in re.findall(r"-?\d+", known.range) for step in (-1, 0, 1)}
            cases += [(known.name, text) for text in sorted(ALWAYS_TRIED | ends)]
    return cases


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Declared:
    cases = tmp_path_factory.mktemp("cases") / "cases"
    cases.write_text("".join(f"{name}\t{text}\n" for name, text in numeric_cases()))
    settings = [f"{name}={text}" for name, text in BASE.items()]
    printed = subprocess.run(
        java_command("ConfigDefs", str(cases), *settings), capture_output=True, text=True, timeout=120, check=True
    ).stdout
    broker, topic, verdicts = (part.strip("\n").split("\n") for part in printed.split("---\n"))
    return Declared(
        {line.split("\t")[0]: line.split("\t") for line in broker}, {line.split("\t")[0]: line.split("\t") for line in topic}, verdicts
    )


@pytest.mark.parametrize("which", ["broker", "topic"])
def test_every_property_is_declared_as_kafka_declares_it(declared: Declared, which: str) -> None:
    theirs: Mapping[str, list[str]] = getattr(declared, which)
    ours: Mapping[str, Property] = SERVER_PROPERTIES if which == "broker" else TOPIC_PROPERTIES

    assert {name for name in ours if not name.startswith("barnabas.")} == set(theirs)
    for name, (_, kind, default, validator, is_internal) in theirs.items():
        known = ours[name]
        assert (known.type.name, known.is_internal) == (kind, is_internal == "true"), name
        if name not in OTHER_DEFAULTS:
            assert _default(known) == default, name
        if known.type in NUMBERS:
            assert _range_in_kafkas_words(known) == validator, name


def test_numbers_are_accepted_where_kafka_accepts_them(declared: Declared) -> None:
    differences = [
        (name, text, verdict)
        for (name, text), verdict in zip(numeric_cases(), declared.verdicts, strict=True)
        if not OTHER_RULES.fullmatch(name) and _verdict(name, text) != verdict
    ]

    assert differences == []


def _verdict(name: str, text: str) -> str:
    try:
        server_config({**BASE, name: text})
    except ConfigError:
        return "refused"
    return "ok"


def _default(known: Property) -> str:
    if known.is_required:
        return "required"
    return "null" if known.default_text is None else str(known.format(known.default))


def _range_in_kafkas_words(known: Property) -> str:
    if known.range == "-":
        return "null"
    interval, _, extra = known.range.partition("|")
    low, high = interval.split("..")
    words = f"[{low},...,{high}]" if high else f"[{low},...]"
    return f"{words} or {extra}" if extra else words
