"""kafka-acls: list, add and remove ACLs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from itertools import groupby

from barnabas.cli.acl.create import create, wished
from barnabas.cli.acl.delete import delete
from barnabas.cli.acl.rules import PATTERNS, Rule, add_rule, filters, find, principal, resources
from barnabas.cli.errors import DONE, FAILED, CommandError
from barnabas.cli.kafka_tools.controllers import connect
from barnabas.cli.kafka_tools.run import add_connection

ACTIONS = ("list", "add", "remove")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for action in ACTIONS:
        parser.add_argument(f"--{action}", action="append_const", dest="actions", const=action)
    add_rule(parser, PATTERNS)
    parser.add_argument("--principal", action="append", default=[], metavar="User:NAME", help="with --list: only the ACLs of these")
    parser.add_argument("--producer", action="store_true")
    parser.add_argument("--consumer", action="store_true")
    parser.add_argument("--idempotent", action="store_true")
    parser.add_argument("--force", action="store_true", help="do not ask")
    add_connection(parser, to_controllers=True)


def run(options: argparse.Namespace) -> int:
    if len(options.actions or ()) != 1:
        print("Command must include exactly one action: --list, --add, --remove. ", file=sys.stderr)
        return FAILED
    (action,) = options.actions
    options.pattern_type = options.pattern_type or ("literal" if resources(options) else None)
    with connect(options) as connection:
        if action == "list":
            found = find(connection, filters(options))
            only = {principal(name) for name in options.principal}
            _print("Current", [rule for rule in found if not only or rule.principal in only])
            return DONE
        if not resources(options):
            raise CommandError("You must specify one of the resources: --topic, --cluster, --group, --transactional-id, …")
        if action == "add":
            options.operation = options.operation or ([] if options.producer or options.consumer else ["all"])
            rules = wished(options)
            create(connection, rules)
            _print("Adding", rules)
            return DONE
        chosen = find(connection, filters(options))
        if chosen and not options.force and not _is_sure(chosen):
            return DONE
        delete(connection, chosen)
    return DONE


def _is_sure(rules: Iterable[Rule]) -> bool:
    print(f"Are you sure you want to remove ACLs: {', '.join(map(str, rules))}? (y/n)")
    return sys.stdin.readline().strip().lower() == "y"


def _print(what: str, rules: Iterable[Rule]) -> None:
    """In the order of the rules, each resource with its own."""
    for (kind, name, pattern), own in groupby(rules, key=lambda rule: (rule.resource_type, rule.resource_name, rule.pattern_type)):
        resource = f"ResourcePattern(resourceType={kind.name}, name={name}, patternType={pattern.name})"
        print(f"{what} ACLs for resource `{resource}`:{' ' if what == 'Adding' else ''}")
        for number, rule in enumerate(own):
            permission = f"operation={rule.operation.name}, permissionType={rule.permission.name}"
            indent = " \t" if what == "Adding" and not number else "\t"
            print(f"{indent}(principal={rule.principal}, host={rule.host}, {permission})")
        print()
