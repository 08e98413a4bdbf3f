"""Print the names of topics, groups or contexts, a line each, for a shell to complete. What a shell could take for something else is left
out, and so is everything if no broker answers soon.
"""

from __future__ import annotations

import argparse
import re
import shlex

from barnabas.cli import arguments
from barnabas.cli.contexts import read_contexts
from barnabas.cli.errors import DONE, CommandError
from barnabas.cli.settings import resolve
from config.properties import ConfigError

KINDS = ("topics", "groups", "contexts")
PLAIN = re.compile(r"[A-Za-z0-9._/@+][A-Za-z0-9._/@+-]*")
"""bash expands words before it offers them: a group with another name could run a command."""
TIMEOUT_S = 2.0
NAMES_MAX = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--of", default="", metavar="LINE", help="the line that is completed: its options say which cluster is asked")


def run(options: argparse.Namespace) -> int:
    try:
        names = _names(options.kind, options.of)
    except (CommandError, ConfigError, OSError, argparse.ArgumentError, ValueError):
        return DONE
    for name in [name for name in names if PLAIN.fullmatch(name)][:NAMES_MAX]:
        print(name)
    return DONE


def _names(kind: str, line: str) -> list[str]:
    """Raises what stops it: CommandError, ConfigError, OSError, and for a line that is not finished ArgumentError, ValueError."""
    if kind == "contexts":
        return sorted(read_contexts().by_name)
    from barnabas.cli.connection import Connection  # confluent-kafka takes its time
    from barnabas.cli.group.offsets import group_ids

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    arguments.add_connection(parser)
    given, _ = parser.parse_known_args(shlex.split(line))
    given.timeout = min(given.timeout, TIMEOUT_S)
    with Connection(resolve(given)) as connection:
        return sorted(connection.metadata().topics) if kind == "topics" else group_ids(connection)
