"""Choose the context that counts when no address is given."""

from __future__ import annotations

import argparse

from barnabas.cli.contexts import read_contexts
from barnabas.cli.errors import DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")


def run(options: argparse.Namespace) -> int:
    contexts = read_contexts()
    contexts.get(options.name)
    contexts.current = options.name
    contexts.save()
    print(f"the current context is {options.name}")
    return DONE
