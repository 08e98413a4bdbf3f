"""Show clusters in a browser: brokers, topics and their messages, groups and their lag, settings."""

from __future__ import annotations

import argparse

from barnabas.cli import arguments
from barnabas.cli.schemas import topic_files

PORT = 8080


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--host", default="127.0.0.1", metavar="ADDRESS", help="to serve on (127.0.0.1)")
    add("--port", type=int, default=PORT, metavar="PORT", help=f"({PORT}); 0 takes a free one")
    add("--allow-host", action="append", default=[], metavar="NAME[:PORT]", help="a further name of it in browsers, such as a proxy's")
    add("--always", action="store_true", help="ask the cluster once a minute when nobody looks, for the history")
    add("--allow-changes", action="store_true", help="for who signs in with a token, which is printed at the start (else it only reads)")
    add(
        "--allow-login",
        action="store_true",
        help="changes, for users of the cluster by password (SASL PLAIN, SCRAM), with their own rights",
    )
    add("--end-with-stdin", action="store_true", help="end when standard input closes, for a program that starts it")
    add("--token-file", metavar="FILE", help="as --allow-changes, with the token in this file")
    add("--schema-registry", default="", metavar="URL", help="for Avro and Protobuf; Confluent's or one with its API (the context's)")
    topic_files.add_arguments(parser)
    arguments.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    from barnabas.console.serve import run as serve

    return serve(options)
