"""Delete the ACLs that the options ask for; they are shown first."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from barnabas.cli import arguments
from barnabas.cli.acl.rules import COLUMNS, PATTERNS, Rule, add_rule, check, filters, find
from barnabas.cli.connection import Connection
from barnabas.cli.errors import DONE, NotUnderstoodError, RefusedError
from barnabas.cli.output import Output, confirm
from barnabas.cli.settings import resolve_for_change
from protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_rule(parser, PATTERNS)
    parser.add_argument("--all", action="store_true", help="all ACLs of the cluster, if nothing else is given")
    arguments.add_change(parser, asks=True)
    arguments.add_output(parser, "-o")
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    settings = resolve_for_change(options)
    asked = filters(options)
    is_everything = len(asked) == 1 and asked[0].resource_name is None and asked[0].principal is None
    if is_everything and not (options.all or options.operation or options.allow_host or options.deny_host):
        raise NotUnderstoodError("say which: a principal, an operation or a resource, or --all")
    with Connection(settings) as connection:
        rules = find(connection, asked)
        if not rules:
            raise RefusedError("there are no such ACLs; barnabas acl list has those that are there")
        if not confirm([f"delete: {rule}" for rule in rules], dry_run=options.dry_run, yes=options.yes):
            return DONE
        delete(connection, rules)
    Output(options.output).rows([rule.to_data() for rule in rules], COLUMNS)
    return DONE


def delete(connection: Connection, rules: Iterable[Rule]) -> None:
    """Exactly these: nothing that was made since they were found. Raises RefusedError."""
    exact = [DeleteAclsFilter(**rule.to_filter()) for rule in rules]
    for result in connection.wire().request(DeleteAclsRequest(filters=exact)).filter_results:
        check(result.error_code, result.error_message)
        for acl in result.matching_acls:
            check(acl.error_code, acl.error_message)
