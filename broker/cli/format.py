"""`barnabas format` and `barnabas random-uuid`: what Kafka's kafka-storage does, with its options and its answers."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from broker.server.formatting import FormatError, new_id
from config.loading import load_server_config
from protocol.uuids import uuid_to_text
from storage.errors import StorageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


def format_storage(arguments: list[str], environ: Mapping[str, str] = os.environ) -> int:
    """Format the log directories; returns the exit code. Raises ConfigError for a wrong setting."""
    from broker.cli.formatter import FormatOptions, format_node

    options = _parser().parse_args(arguments)
    config = load_server_config(options.config, environ, options.override)
    asked = FormatOptions(
        options.cluster_id,
        ignore_formatted=options.ignore_formatted,
        release_version=options.release_version,
        features=options.feature,
        scram_users=options.add_scram,
        is_standalone=options.standalone,
        initial_controllers=options.initial_controllers,
        has_no_initial_controllers=options.no_initial_controllers,
    )
    try:
        format_node(config, asked, random_bytes=os.urandom, now_ms=int(time.time() * 1000), say=print)
    except (FormatError, StorageError, OSError) as e:
        print(f"barnabas format: {e}", file=sys.stderr)
        return 1
    return 0


def random_uuid(arguments: list[str]) -> int:
    """Print a new cluster id as Kafka writes it: 22 characters of URL-safe Base64."""
    from broker.cli.one_line_parser import OneLineParser

    parser = OneLineParser(prog="barnabas random-uuid", description="Print a random cluster id.")
    parser.parse_args(arguments)
    print(uuid_to_text(new_id(os.urandom)))
    return 0


def _parser() -> argparse.ArgumentParser:
    from broker.cli.one_line_parser import OneLineParser

    parser = OneLineParser(prog="barnabas format", description="Format empty log directories, as kafka-storage format does.")
    parser.add_argument("--config", "-c", metavar="FILE", help="a Kafka server.properties (default: the shipped one)")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="set one property; may be given many times")
    parser.add_argument("--cluster-id", "-t", required=True, help="the cluster's id (barnabas random-uuid makes one)")
    parser.add_argument("--ignore-formatted", "-g", action="store_true", help="skip directories that are formatted already")
    parser.add_argument(
        "--release-version", "-r", metavar="RELEASE", help="the release whose features the cluster begins with (default: 4.0)"
    )
    parser.add_argument(
        "--feature", "-f", action="append", default=[], metavar="NAME=LEVEL", help="the level of one feature; may be given many times"
    )
    parser.add_argument(
        "--add-scram",
        "-S",
        action="append",
        default=[],
        metavar="CREDENTIAL",
        help="a user's SCRAM credential: 'SCRAM-SHA-256=[name=alice,password=alice-secret]'; may be given many times",
    )
    controllers = parser.add_mutually_exclusive_group()
    controllers.add_argument("--standalone", "-s", action="store_true", help="this node begins as the only voter of its quorum")
    controllers.add_argument("--no-initial-controllers", "-N", action="store_true", help="this node joins a quorum that is there")
    controllers.add_argument(
        "--initial-controllers", "-I", metavar="VOTERS", help="the first voters, the same for all nodes: id@host:port:directory-id,…"
    )
    return parser
