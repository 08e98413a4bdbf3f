"""Create ACLs: every combination of the principals, hosts, operations and resources that are given.

--producer and --consumer stand for operations, as in kafka-acls: Write, Describe and Create on topics, and Write and Describe on
transactional ids; Read and Describe on topics, and Read on groups.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from barnabas.cli import arguments
from barnabas.cli.acl.rules import ANY_HOST, COLUMNS, PATTERNS, Rule, add_rule, check, operations, principal, resources
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError
from barnabas.cli.output import Output
from barnabas.cli.settings import resolve_for_change
from broker.security.authorizer.acl_codes import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType
from protocol.messages.create_acls import AclCreation, CreateAclsRequest

PRODUCER = {
    ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
CONSUMER = {ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE), ResourceType.GROUP: (AclOperation.READ,)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_rule(parser, [name for name in PATTERNS if name not in ("any", "match")])
    parser.add_argument("--producer", action="store_true", help="what a producer needs")
    parser.add_argument("--consumer", action="store_true", help="what a consumer needs")
    parser.add_argument("--idempotent", action="store_true", help="also IdempotentWrite on the cluster, for brokers before Kafka 2.8")
    arguments.add_change(parser)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    rules = wished(options)
    if not options.dry_run:
        with Connection(settings) as connection:
            create(connection, rules)
    Output(options.output).rows([rule.to_data() for rule in rules], COLUMNS)
    return DONE


def create(connection: Connection, rules: Iterable[Rule]) -> None:
    """Raises RefusedError."""
    creations = [
        AclCreation(
            resource_type=rule.resource_type,
            resource_name=rule.resource_name or "",
            resource_pattern_type=rule.pattern_type,
            principal=rule.principal or "",
            host=rule.host or "",
            operation=rule.operation,
            permission_type=rule.permission,
        )
        for rule in rules
    ]
    for result in connection.wire().request(CreateAclsRequest(creations=creations)).results:
        check(result.error_code, result.error_message)


def wished(options: argparse.Namespace) -> list[Rule]:
    """The rules of the options. Raises NotUnderstoodError if they say none."""
    permitted = [
        *((AclPermissionType.ALLOW, name, host) for name in options.allow_principal for host in options.allow_host or [ANY_HOST]),
        *((AclPermissionType.DENY, name, host) for name in options.deny_principal for host in options.deny_host or [ANY_HOST]),
    ]
    chosen = [(kind, name, operation) for kind, name in resources(options) for operation in _operations_on(kind, options)]
    if options.idempotent:
        chosen.append((ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.IDEMPOTENT_WRITE))
    if not permitted:
        raise NotUnderstoodError("say who: --allow-principal or --deny-principal")
    if not chosen:
        raise NotUnderstoodError("say what: --operation, --producer or --consumer, on --topic, --group, --cluster or --transactional-id")
    pattern = PATTERNS[options.pattern_type or "literal"]
    return list(
        dict.fromkeys(
            # The cluster has one name: a prefix of it means nothing.
            Rule(kind, name, PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern, principal(who), host, operation, permission)
            for permission, who, host in permitted
            for kind, name, operation in chosen
        )
    )


def _operations_on(kind: ResourceType, options: argparse.Namespace) -> list[AclOperation]:
    found = operations(options)
    found += PRODUCER.get(kind, ()) if options.producer else ()
    found += CONSUMER.get(kind, ()) if options.consumer else ()
    return list(dict.fromkeys(found))
