"""Remember a cluster by a name. The first one becomes the current one."""

from __future__ import annotations

import argparse
from pathlib import Path

from barnabas.cli.contexts import Context, read_contexts
from barnabas.cli.errors import DONE, NotUnderstoodError, RefusedError
from barnabas.cli.schemas.registry import check_url
from barnabas.cli.schemas.topic_files import add_arguments as add_schemas
from barnabas.cli.schemas.topic_files import files_of
from barnabas.cli.settings import parse_properties


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="NAME")
    add("-b", "--bootstrap-server", "--bootstrap-servers", "--brokers", default="", metavar="HOST:PORT[,…]")
    add("-X", dest="properties", action="append", default=[], metavar="KEY=VALUE", help="a property of librdkafka; no passwords")
    add(
        "-F",
        "--command-config",
        default="",
        metavar="FILE",
        help="client properties, a Java client's or librdkafka's, with passwords",
    )
    add("--schema-registry", default="", metavar="URL", help="of its records; a login is in the file of --command-config")
    add_schemas(parser)
    add("--read-only", action="store_true", help="commands that change anything are refused")
    add("--use", action="store_true", help="make it the current one")
    add("--replace", action="store_true", help="if there is one of that name")


def run(options: argparse.Namespace) -> int:
    contexts = read_contexts()
    if options.name in contexts.by_name and not options.replace:
        raise RefusedError(f"there is a context {options.name!r} already; --replace puts this one in its place")
    if not options.bootstrap_server and not options.command_config:
        raise NotUnderstoodError("say where it is: --bootstrap-server HOST:PORT, or --command-config FILE with bootstrap.servers")
    path = str(Path(options.command_config).absolute()) if options.command_config else ""
    if options.schema_registry:
        check_url(options.schema_registry)
    contexts.by_name[options.name] = Context(
        options.bootstrap_server,
        path,
        options.read_only,
        parse_properties(options.properties),
        options.schema_registry,
        files_of(options.value_schema),
        files_of(options.key_schema),
    )
    contexts.current = options.name if options.use or not contexts.current else contexts.current
    contexts.save()
    print(f"context {options.name} is in {contexts.path}")
    return DONE
