"""The authorizer beside Apache Kafka's StandardAuthorizer, in random worlds: the same decision by the same rule, in the same words."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from broker.controller.acl_control import check_new_acl
from broker.security.authorizer.acl import Acl, AclFilter
from broker.security.authorizer.acl_codes import AclOperation, PatternType, ResourceType
from broker.security.authorizer.acl_store import AclStore
from broker.security.authorizer.addresses import java_address
from broker.security.authorizer.audit import audit_message
from broker.security.authorizer.standard_authorizer import StandardAuthorizer
from protocol.errors import KafkaError
from tests.broker.security.authorizer.random_rules import NAMES, random_acl, random_question
from tests.broker.security.authorizer.room import DENY, GROUP, LITERAL, PREFIXED, READ, TOPIC, store_of
from tests.support.kafka import java_command

WORLDS = 60
QUESTIONS = 60


@dataclass
class Script:
    """Commands for Acls.java, and what our code says to each."""

    commands: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def add(self, *words: object, expected: str = "ok") -> None:
        self.commands.append("\t".join("null" if word is None else f"{word:d}" if isinstance(word, int) else str(word) for word in words))
        self.expected.append(expected)


def write_world(script: Script, chance: random.Random) -> None:
    without_acls = chance.random() < 0.3
    acls = {random_acl(chance, denied=chance.random() * 0.6) for _ in range(chance.choice((2, 8, 30, 80)))}
    store = store_of(sorted(acls))
    authorizer = StandardAuthorizer(store, is_allowed_without_acls=without_acls)
    authorizer.is_loaded = True
    script.add("new", str(without_acls).lower())
    for acl in acls:
        script.add("add", *acl)
    for _ in range(QUESTIONS):
        question = random_question(chance)
        line = audit_message(
            authorizer.authorize(*question),
            principal=question.principal,
            host=question.host,
            operation=AclOperation(question.operation),
            resource_type=ResourceType(question.resource_type),
            resource_name=question.name,
            request="Fetch",
        )
        script.add("authorize", *question, expected=line)
        by_type = authorizer.authorize_by_type(*question[:4])
        script.add("type", *question[:4], expected="ALLOWED" if by_type.is_allowed else "DENIED")
    for acl_filter in random_filters(chance):
        script.add("find", *acl_filter, expected=found(store, acl_filter))


def random_filters(chance: random.Random) -> Iterator[AclFilter]:
    for _ in range(20):
        yield AclFilter(
            chance.choice((0, ResourceType.ANY, TOPIC, GROUP, 9)),
            chance.choice((None, *NAMES, "abcde")),
            chance.choice((PatternType.UNKNOWN, PatternType.ANY, PatternType.MATCH, LITERAL, PREFIXED, 5)),
            chance.choice((None, None, "User:a", "User:*")),
            chance.choice((None, None, "*", "10.0.0.1")),
            chance.choice((AclOperation.ANY, AclOperation.ANY, READ, AclOperation.UNKNOWN)),
            chance.choice((1, 1, DENY)),
        )


def found(store: AclStore, acl_filter: AclFilter) -> str:
    return ";".join(sorted(str(acl) for _, acl in store.find(acl_filter)))


def write_addresses(script: Script, chance: random.Random) -> None:
    for _ in range(20):
        packed = bytes(chance.choice((0, 0, 1, 16, 255)) for _ in range(16))
        script.add("address", packed.hex(), expected=java_address(packed))
        mapped = bytes(10) + b"\xff\xff" + chance.randbytes(4)
        script.add("address", mapped.hex(), expected=java_address(mapped))


def write_new_acls(script: Script, chance: random.Random) -> None:
    for _ in range(100):
        acl = Acl(
            chance.choice((0, TOPIC, GROUP, 7, 8)),
            chance.choice(("*", "a")),
            chance.choice((0, LITERAL, PREFIXED, 5)),
            chance.choice(("User:a", ":", "", "a")),
            chance.choice(("*", "", "no address")),
            chance.choice((0, 2, 15, 16)),
            chance.choice((0, 2, 3, 4)),
        )
        script.add("validate", *acl, expected=refusal(acl))


def refusal(acl: Acl) -> str:
    try:
        check_new_acl(acl)
    except KafkaError as error:
        return error.message or ""
    return "ok"


def test_apache_kafka_decides_by_the_same_rule_in_the_same_words(tmp_path: Path) -> None:
    chance = random.Random(26)
    script = Script()
    for _ in range(WORLDS):
        write_world(script, chance)
    write_addresses(script, chance)
    write_new_acls(script, chance)
    commands = tmp_path / "commands"
    commands.write_text("".join(f"{command}\n" for command in script.commands))

    run = subprocess.run(java_command("Acls", str(commands)), capture_output=True, timeout=120, check=True)

    printed = run.stdout.decode().splitlines()
    assert len(printed) == len(script.expected)
    differences = [found for found in zip(script.commands, printed, script.expected, strict=True) if found[1] != found[2]]
    assert differences[:5] == []
