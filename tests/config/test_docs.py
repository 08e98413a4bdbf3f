"""Every property does something here or says that it does not: the sentences of config/docs.py against the code that reads settings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from broker.groups.group_config import GroupConfig
from broker.metadata.dynamic_configs import LIVE_SETTINGS
from config.docs import documentation, has_effect
from config.documentation import own_properties_table
from config.listener_properties import LISTENER_PROPERTIES
from config.server import SERVER_PROPERTIES, ServerConfig
from config.server_rules import NOT_SUPPORTED
from config.topic import TOPIC_PROPERTIES, LogConfig
from tests.support.sources import ROOT, tree_of

HOLDERS = {"config", "_config"}  # what a ServerConfig, LogConfig or GroupConfig is called where it is read
MAYBE_READ = re.compile(r"config[\s)]*\.")

# What a field of ServerConfig is made of beside the property of its own name (config/server_rules.py).
ALSO_MADE_OF = {
    "node.id": ("broker.id",),
    "log.dirs": ("log.dir",),
    "inter.broker.listener.name": ("security.inter.broker.protocol",),
}
CHECKED = {"listener.security.protocol.map", "ssl.allow.dn.changes", "ssl.allow.san.changes"}  # at the start, which a wrong one stops
REFUSED_TOPIC_PROPERTIES = {"remote.storage.enable"}
GROUP_BOUNDS = {
    f"group.consumer.{end}.{what}.ms" for end in ("min", "max") for what in ("assignment.interval", "heartbeat.interval", "session.timeout")
}
"""Between them lie a group's own configs; config/group.py makes the names."""
TURNED_INTO_ANOTHER = {"internal.segment.bytes": "segment.bytes"}


def test_a_property_without_effect_says_so_and_no_other_does() -> None:
    wrong = [name for name in {**SERVER_PROPERTIES, **TOPIC_PROPERTIES} if has_effect(name) == ("without effect" in documentation(name))]

    assert wrong == []


def test_broker_properties_are_read_by_the_broker_or_said_to_have_no_effect() -> None:
    of_topics = {synonym: known.name for known in TOPIC_PROPERTIES.values() for synonym in known.synonyms}
    used = {name for name in SERVER_PROPERTIES if is_read(SERVER_PROPERTIES[name].attribute, ServerConfig)}
    used |= {name for name, topic_name in of_topics.items() if topic_name in used_topic_properties()}
    used |= set(LIVE_SETTINGS)
    used |= NOT_SUPPORTED.keys() | CHECKED | GROUP_BOUNDS | set(LISTENER_PROPERTIES)
    used |= {twin for name in used for twin in ALSO_MADE_OF.get(name, ())}

    assert {name for name in SERVER_PROPERTIES if has_effect(name)} == used


def test_topic_properties_are_read_by_the_broker_or_said_to_have_no_effect() -> None:
    assert {name for name in TOPIC_PROPERTIES if has_effect(name)} == used_topic_properties() | REFUSED_TOPIC_PROPERTIES


def test_the_group_coordinator_reads_what_it_is_configured_with() -> None:
    assert [field for field in GroupConfig.__annotations__ if field not in attributes_read("broker/groups")] == []


@pytest.mark.parametrize("name", ["num.io.threads", "log.preallocate", "ssl.protocol", "listener.name.plaintext.ssl.protocol"])
def test_what_has_no_effect_is_known_by_name_family_and_synonym(name: str) -> None:
    assert not has_effect(name)


def test_the_operators_page_lists_every_property_of_ours() -> None:
    """Where it differs, the rows are what `python -m config.documentation` prints."""
    page = (ROOT / "docs" / "operations.md").read_text()

    rows = [line for line in page.splitlines(keepends=True) if line.startswith("| `barnabas.")]

    assert "".join(rows) == own_properties_table()


def used_topic_properties() -> set[str]:
    used = {name for name, known in TOPIC_PROPERTIES.items() if is_read(known.attribute.removeprefix("barnabas_"), LogConfig)}
    return used | {name for name, target in TURNED_INTO_ANOTHER.items() if target in used}


def is_read(attribute: str, owner: type) -> bool:
    """Whether broker/ or storage/ read the attribute of a settings object, or a property of its class that is made of it."""
    read = attributes_read("broker") | attributes_read("storage")
    return attribute in read or any(derived in read for derived in properties_made_of(attribute, owner))


def properties_made_of(attribute: str, owner: type) -> list[str]:
    """Properties of the class that read the attribute, and fields that `__post_init__` makes of it (`object.__setattr__`)."""
    return [name for name, read in made_of_attributes(owner) if attribute in read]


@cache
def made_of_attributes(owner: type) -> tuple[tuple[str, frozenset[str]], ...]:
    """Each of them, with the attributes that it is made of."""
    source = {ServerConfig: "config/server.py", LogConfig: "config/topic.py"}[owner]
    (owner_node,) = (node for node in tree_of(ROOT / source).body if isinstance(node, ast.ClassDef) and node.name == owner.__name__)
    methods = [node for node in owner_node.body if isinstance(node, ast.FunctionDef) and isinstance(vars(owner).get(node.name), property)]
    made: list[tuple[str, ast.AST]] = [(method.name, method) for method in methods]
    for node in ast.walk(owner_node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__setattr__":
            _, name, value = node.args
            assert isinstance(name, ast.Constant)
            made.append((str(name.value), value))
    return tuple((name, frozenset(read for _, read in attribute_accesses(tree))) for name, tree in made)


@cache
def attributes_read(folder: str) -> frozenset[str]:
    """Only files where something follows a holder's name are parsed: parsing takes most of the time."""
    files = [path for path in (ROOT / folder).rglob("*.py") if MAYBE_READ.search(path.read_text(encoding="utf-8"))]
    return frozenset(name for file in files for holder, name in attribute_accesses(tree_of(file)) if holder in HOLDERS)


def attribute_accesses(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """`a.b.c` as (b, c): what an attribute is read from, by its last name, and the attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute | ast.Name):
            yield (node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id), node.attr
