"""`barnabas format` and `barnabas random-uuid`: what Kafka's kafka-storage does, with its options and its answers.

Formatting gives each log directory its identity in meta.properties and nothing else: the metadata log is begun at the first start.
`serve` formats through `format_directories` as well, so argparse is imported only where arguments are read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from config.loading import load_server_config
from config.server import ServerConfig
from protocol.uuids import uuid_to_text
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import StorageError
from storage.files import make_directory
from storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties

if TYPE_CHECKING:
    import argparse

# Kafka keeps the ids 0 to 99 for itself (Uuid.RESERVED, DirectoryId.reserved).
RESERVED_IDS_COUNT = 100


class FormatError(Exception):
    """The directories cannot be formatted; `str()` is the line to print."""


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


def format_directories(
    config: ServerConfig, cluster_id: str, *, ignore_formatted: bool, random_bytes: Callable[[int], bytes], disk: Disk = SYSTEM_DISK
) -> list[Path]:
    """Give every log directory of `config` that has none an identity; returns those directories.

    Raises FormatError before anything is written: for a directory that has an identity already (unless `ignore_formatted`) or has
    that of another cluster or node. As in Kafka since 4.0 any text is a cluster id, and is kept as it is given; but not the empty
    one, which comes from a variable that was not set.
    """
    if not cluster_id:
        raise FormatError("the cluster id is empty; barnabas random-uuid makes one")
    directories = [Path(directory) for directory in dict.fromkeys((config.metadata_log_dir, *config.log_dirs))]
    empty = []
    for directory in directories:
        meta = read_meta_properties(directory, disk)
        if meta is None:
            empty.append(directory)
        elif not ignore_formatted:
            raise FormatError(
                f"Log directory {directory} is already formatted. Use --ignore-formatted to ignore this directory and format the others."
            )
        elif (meta.cluster_id, meta.node_id) != (cluster_id, config.node_id):
            raise FormatError(f"log directory {directory} belongs to node {meta.node_id} of cluster {meta.cluster_id}")
    for directory in empty:
        make_directory(directory, disk)
        write_meta_properties(directory, MetaProperties(cluster_id, config.node_id, new_id(random_bytes)), disk)
    return empty


def new_id(random_bytes: Callable[[int], bytes]) -> bytes:
    """A random (version 4) UUID that Kafka takes: not one of its reserved ones, and no dash first, which tools take for an option."""
    while True:
        raw = bytearray(random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if int.from_bytes(raw, "big") >= RESERVED_IDS_COUNT and not uuid_to_text(bytes(raw)).startswith("-"):
            return bytes(raw)


def _parser() -> argparse.ArgumentParser:
    import argparse

    parser = argparse.ArgumentParser(prog="barnabas format", description="Format empty log directories, as kafka-storage format does.")
    parser.add_argument("--config", "-c", metavar="FILE", help="a Kafka server.properties (default: the shipped one)")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="set one property; may be given many times")
    parser.add_argument("--cluster-id", "-t", required=True, help="the cluster's id (barnabas random-uuid makes one)")
    parser.add_argument("--ignore-formatted", "-g", action="store_true", help="skip directories that are formatted already")
    parser.add_argument("--standalone", "-s", action="store_true", help="this node is its own quorum: always so, until there are clusters")
    return parser
