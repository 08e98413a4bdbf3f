"""Forget a cluster. The cluster itself is not touched."""

from __future__ import annotations

import argparse

from barnabas.cli.contexts import read_contexts
from barnabas.cli.errors import DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME")


def run(options: argparse.Namespace) -> int:
    contexts = read_contexts()
    contexts.get(options.name)
    del contexts.by_name[options.name]
    contexts.current = "" if contexts.current == options.name else contexts.current
    contexts.save()
    print(f"context {options.name} is forgotten")
    return DONE
