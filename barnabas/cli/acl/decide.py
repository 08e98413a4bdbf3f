"""Say whether somebody may do something, and which rule decides it. Ends with 1 if not.

A resource is topic:NAME, group:NAME, transactional-id:NAME, delegation-token:NAME, user:User:NAME, or cluster. A rule for one host counts
with --host only.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka.admin import ResourceType as ConfigResourceType

from barnabas.cli import arguments
from barnabas.cli.acl.rules import ANY_HOST, COLUMNS, RESOURCE_OPTIONS, Rule, find, operations, principal
from barnabas.cli.cluster_facts import configs
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, FAILED, CommandError, NotUnderstoodError
from barnabas.cli.output import Column, Output
from barnabas.cli.settings import resolve
from broker.security.authorizer.acl_codes import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType, pascal_case

KINDS = {"user" if name == "user_resource" else name.replace("_", "-"): kind for name, kind in RESOURCE_OPTIONS.items()}
DEFAULT = "allow.everyone.if.no.acl.found"
EVERYBODY = "User:*"
IMPLIED_BY = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
"""Operation → operations whose Allow is one for it too. A Deny of them is none."""
SHOWN = (
    *(column for column in COLUMNS if column.key in ("principal", "host", "operation", "resource_type", "resource_name")),
    Column("is_allowed", "ALLOWED"),
    Column("why", "WHY"),
)


class Question(NamedTuple):
    """Who wants to do what, from where; `host` is ANY_HOST for anywhere."""

    principal: str
    host: str
    operation: AclOperation


class Decision(NamedTuple):
    """`is_allowed` is None where it cannot be known; `rule` is what decides it, if it is a rule."""

    is_allowed: bool | None
    why: str
    rule: Rule | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("principal", metavar="PRINCIPAL", help="User:NAME, or NAME alone")
    add("operation", nargs=1, metavar="OPERATION", help="read, write, describe-configs …")
    add(
        "resource", metavar="RESOURCE", help="topic:NAME, group:NAME, transactional-id:NAME, delegation-token:NAME, user:User:NAME, cluster"
    )
    add("--host", default=ANY_HOST, metavar="ADDRESS", help="where from (any)")
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    who, (operation,), (kind, name) = principal(options.principal), operations(options), _resource(options.resource)
    if operation is AclOperation.ALL:
        raise NotUnderstoodError("all is no operation that a client does: ask for one, such as read")
    with Connection(resolve(options)) as connection:
        asked = Rule(kind, name, PatternType.MATCH, None, None, AclOperation.ANY, AclPermissionType.ANY)
        rules = find(connection, [asked])
        settings = _broker_settings(connection)
    decision = _decide(rules, settings, Question(who, options.host, operation))
    row = {
        "principal": who,
        "host": options.host,
        "operation": pascal_case(operation),
        "resource_type": pascal_case(kind),
        "resource_name": name,
        "is_allowed": decision.is_allowed,
        "why": decision.why,
        "rule": None if decision.rule is None else decision.rule.to_data(),
    }
    Output(options.output).rows([row], SHOWN)
    return DONE if decision.is_allowed else FAILED


def _resource(text: str) -> tuple[ResourceType, str]:
    """Raises NotUnderstoodError."""
    word, colon, name = text.partition(":")
    if word == "cluster" and not name:
        return ResourceType.CLUSTER, CLUSTER_NAME
    if word not in KINDS or not colon or not name:
        raise NotUnderstoodError(f"{text!r} is no resource: it is {', '.join(f'{each}:NAME' for each in KINDS)}, or cluster")
    return KINDS[word], name


def _broker_settings(connection: Connection) -> dict[str, str | None]:
    """Of a broker, with its authorizer's. Apache Kafka tells no values of those; who has no right is told nothing."""
    try:
        broker_id = str(min(connection.metadata().brokers))
        return {name: entry.value for name, entry in configs(connection, ConfigResourceType.BROKER, [broker_id])[broker_id].items()}
    except CommandError:
        return {}  # no right to see them


def _decide(rules: Sequence[Rule], settings: dict[str, str | None], question: Question) -> Decision:
    """As the brokers do (StandardAuthorizerData): a rule that denies counts before all that allow. `rules` are all that cover it."""
    if question.principal in (each.strip() for each in (settings.get("super.users") or "").split(";")):
        return Decision(True, "super.users")
    applying = [rule for rule in rules if _applies(rule, question)]
    denying = [rule for rule in applying if rule.permission is AclPermissionType.DENY]
    if applying:
        rule = (denying or applying)[0]
        return Decision(not denying, str(rule), rule)
    setting = settings.get(DEFAULT)
    if rules or (setting is not None and setting.lower() != "true"):
        return Decision(False, "no rule allows it")
    return Decision(True, DEFAULT) if setting else Decision(None, f"no rule is about it, and the broker does not tell {DEFAULT}")


def _applies(rule: Rule, question: Question) -> bool:
    if rule.principal not in (question.principal, EVERYBODY) or rule.host not in (question.host, ANY_HOST):
        return False
    implied_by = IMPLIED_BY.get(question.operation, ()) if rule.permission is AclPermissionType.ALLOW else ()
    return rule.operation in (question.operation, AclOperation.ALL, *implied_by)
