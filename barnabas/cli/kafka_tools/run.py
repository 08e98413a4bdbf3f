"""`barnabas kafka-tool NAME …`: what `kafka-topics.sh` and its like call in the container image, where no JVM is.

A tool's module has `add_arguments(parser)` and `run(options) -> exit code`. As in Kafka, a command line that is not understood ends with 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import sys
from typing import NoReturn

from barnabas.cli.client_properties import JAVA_ONLY
from barnabas.cli.errors import CLOSED, FAILED, CommandError
from barnabas.cli.settings import Settings, resolve
from broker.server.version import VERSION
from config.properties import ConfigError

TOOLS = {
    "kafka-acls": "acls",
    "kafka-broker-api-versions": "broker_api_versions",
    "kafka-configs": "configs",
    "kafka-console-consumer": "console_consumer",
    "kafka-console-producer": "console_producer",
    "kafka-consumer-groups": "consumer_groups",
    "kafka-get-offsets": "get_offsets",
    "kafka-metadata-quorum": "metadata_quorum",
    "kafka-storage": "storage",
    "kafka-topics": "topics",
}
KAFKA_VERSION = "4.3.1"
"""Whose options and output the tools have. Scripts read the first word of --version."""
TIMEOUT_S = 60.0
"""As long as Kafka's administrator waits (default.api.timeout.ms)."""


class UsageError(CommandError):
    """A command line that has no meaning, in the words of Kafka's tool."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(FAILED, f"{self.prog}: {message}; {self.prog} --help says more\n")


def run_tool(arguments: list[str]) -> int:
    """Run the tool that the first argument names; returns its exit code. What stops it is a line on stderr, and 1, whatever it is: Kafka's
    tools have no other code."""
    name = arguments[0].removesuffix(".sh") if arguments else ""
    if name not in TOOLS:
        raise CommandError(f"there is no {name or 'name'}; there are {', '.join(TOOLS)}")
    try:
        return _run(name, arguments[1:])
    except BrokenPipeError:
        raise
    except (CommandError, ConfigError, OSError) as e:
        why = f"no broker answers: {CLOSED}" if isinstance(e, ConnectionResetError) else str(e)
        print(" ".join(why.split("\n")), file=sys.stderr)
        return FAILED


def _run(name: str, arguments: list[str]) -> int:
    module = importlib.import_module(f"barnabas.cli.kafka_tools.{TOOLS[name]}")
    parser = _Parser(prog=name, description=(module.__doc__ or "").partition("\n\n")[0], allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"{KAFKA_VERSION} (barnabas {VERSION})")
    module.add_arguments(parser)
    code: int = module.run(parser.parse_args(arguments))
    sys.stdout.flush()
    return code


def error_text(error: Exception) -> str:
    """As Java prints an exception that a broker has answered with: its class before what it says."""
    name, colon, text = str(error).partition(": ")
    if not colon or not name.isupper():
        return str(error)
    words = name.removesuffix("_FAILED").split("_")
    return f"org.apache.kafka.common.errors.{''.join(word.capitalize() for word in words)}Exception: {text}"


def add_connection(parser: argparse.ArgumentParser, *config_options: str, to_controllers: bool = False, is_required: bool = True) -> None:
    """How a tool reaches the cluster; `config_options` are further names of --command-config. `to_controllers`: by controllers, too."""
    if to_controllers:
        either = parser.add_mutually_exclusive_group(required=True)
        either.add_argument("--bootstrap-server", metavar="HOST:PORT[,…]")
        either.add_argument("--bootstrap-controller", metavar="HOST:PORT[,…]", help="addresses of controllers in the place of brokers'")
    else:
        parser.add_argument("--bootstrap-server", required=is_required, metavar="HOST:PORT[,…]")
    parser.add_argument("--command-config", *config_options, default="", metavar="FILE", help="properties of a client")


def settings_of(options: argparse.Namespace, properties: list[str] | None = None) -> Settings:
    """Those of the command line alone: neither contexts nor BARNABAS_… variables count. `properties` are a Java client's, key=value; they
    win over the file's. Raises CommandError, ConfigError."""
    known = argparse.Namespace(
        bootstrap_server=options.bootstrap_server or vars(options).get("bootstrap_controller", ""),
        command_config=options.command_config,
        properties=[],
        context="",
        timeout=TIMEOUT_S,
    )
    settings = resolve(known, {})
    given = dict(word.split("=", 1) for word in properties or () if "=" in word)
    unread = [key for key in given if key in JAVA_ONLY]
    return dataclasses.replace(
        settings,
        librdkafka={**settings.librdkafka, **{key: value for key, value in given.items() if key not in JAVA_ONLY}},
        unread=(*settings.unread, *unread),
    )


def unescaped(text: str) -> bytes:
    """A separator as a script writes it, \\t for a tab, in UTF-8."""
    try:
        return text.encode("latin-1", "backslashreplace").decode("unicode_escape").encode()
    except UnicodeError:  # a backslash that begins nothing
        return text.encode()
