"""`barnabas format` and `barnabas random-uuid`: what Kafka's kafka-storage does, with its options and its answers.

Formatting gives each log directory its identity in meta.properties and nothing else: the metadata log is begun at the first start.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from broker.formatting import FormatError, format_directories, new_id
from config.loading import load_server_config
from protocol.uuids import uuid_to_text
from storage.errors import StorageError

if TYPE_CHECKING:
    import argparse


def format_storage(arguments: list[str]) -> int:
    """Format the log directories; returns the exit code. Raises ConfigError for a wrong setting."""
    options = _parser().parse_args(arguments)
    config = load_server_config(options.config, os.environ, options.override)
    try:
        formatted = format_directories(config, options.cluster_id, ignore_formatted=options.ignore_formatted, random_bytes=os.urandom)
    except (FormatError, StorageError, OSError) as e:
        print(f"barnabas format: {e}", file=sys.stderr)
        return 1
    for directory in formatted:
        print(f"Formatting directory {directory} for cluster {options.cluster_id} and node {config.node_id}.")
    if not formatted:
        print("All of the log directories are already formatted.")
    return 0


def random_uuid(arguments: list[str]) -> int:
    """Print a new cluster id as Kafka writes it: 22 characters of URL-safe Base64."""
    import argparse

    parser = argparse.ArgumentParser(prog="barnabas random-uuid", description="Print a random cluster id.")
    parser.parse_args(arguments)
    print(uuid_to_text(new_id(os.urandom)))
    return 0


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(prog="barnabas format", description="Format empty log directories, as kafka-storage format does.")
    parser.add_argument("--config", "-c", metavar="FILE", help="a Kafka server.properties (default: the shipped one)")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="set one property; may be given many times")
    parser.add_argument("--cluster-id", "-t", required=True, help="the cluster's id (barnabas random-uuid makes one)")
    parser.add_argument("--ignore-formatted", "-g", action="store_true", help="skip directories that are formatted already")
    parser.add_argument("--standalone", "-s", action="store_true", help="this node is its own quorum: always so, until there are clusters")
    return parser
