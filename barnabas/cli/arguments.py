"""The options that several commands have."""

from __future__ import annotations

import argparse
import re

from barnabas.cli.errors import NotUnderstoodError

OUTPUTS = ("table", "wide", "json", "yaml")
TIMEOUT_S = 10.0


def add_connection(parser: argparse.ArgumentParser) -> None:
    """How to reach the cluster."""
    group = parser.add_argument_group("connection")
    add = group.add_argument
    add("-b", "--bootstrap-server", "--bootstrap-servers", "--brokers", default="", metavar="HOST:PORT[,…]", help="(localhost:9092)")
    add("-X", dest="properties", action="append", default=[], metavar="KEY=VALUE", help="a property of librdkafka; no passwords")
    add(
        "-F", "--command-config", default="", metavar="FILE",
        help="client properties, a Java client's (PEM, JKS, PKCS#12, sasl.jaas.config) or librdkafka's",
    )  # fmt: skip
    add("--context", default="", metavar="NAME", help="a cluster of `barnabas context list`")
    add("--timeout", type=float, default=TIMEOUT_S, metavar="SECONDS", help=f"to wait for an answer ({TIMEOUT_S:.0f})")


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression of whole names; all if there is none. Raises NotUnderstoodError."""
    try:
        return re.compile(text or ".*", re.DOTALL)
    except re.error as e:
        raise NotUnderstoodError(f"{text!r} is no regular expression: {e}") from e


def add_output(parser: argparse.ArgumentParser, *flags: str) -> None:
    """`flags` are further names of --output."""
    parser.add_argument("--output", *flags, choices=OUTPUTS, default="table", help="wide has more columns; json and yaml have all fields")


def add_change(parser: argparse.ArgumentParser, *, asks: bool = False) -> None:
    """For what changes something; `asks` for what destroys something."""
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    if asks:
        parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
