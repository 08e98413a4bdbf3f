"""Formats log directories, that is, writes their meta.properties: for the `barnabas format` command, and for a start that may format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from config.server import ServerConfig
from protocol.uuids import uuid_to_text
from storage.disk import SYSTEM_DISK, Disk
from storage.files import make_directory
from storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties

# Kafka reserves the ids 0 to 99 (Uuid.RESERVED, DirectoryId.reserved).
RESERVED_IDS_COUNT = 100


class FormatError(Exception):
    """The directories cannot be formatted; `str()` is the line to print."""


Prepare = Callable[[Path], bytes | None]
"""Writes what else is in a formatted directory; returns the directory's id, or None for a random one."""


def format_directories(
    config: ServerConfig,
    cluster_id: str,
    *,
    ignore_formatted: bool,
    random_bytes: Callable[[int], bytes],
    disk: Disk = SYSTEM_DISK,
    prepare: Prepare | None = None,
) -> list[Path]:
    """Format every log directory of `config` that is not formatted; returns these directories. `prepare` is called for each before its
    meta.properties is written: a directory with that file is complete.

    Raises FormatError before anything is written: for a directory that has an identity already (unless `ignore_formatted`) or has that of
    another cluster or node. As in Kafka since 4.0 any text is a cluster id, and is kept as it is given; but not an empty one, which comes
    from an unset variable.
    """
    if not cluster_id:
        raise FormatError("the cluster id is empty; barnabas random-uuid makes one")
    directories = list(dict.fromkeys(map(Path, (config.metadata_log_dir, *config.log_dirs))))
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
        directory_id = None if prepare is None else prepare(directory)
        write_meta_properties(directory, MetaProperties(cluster_id, config.node_id, directory_id or new_id(random_bytes)), disk)
    return empty


def new_id(random_bytes: Callable[[int], bytes]) -> bytes:
    """Returns a random (version 4) UUID that Kafka accepts: not a reserved one, and without a dash at the start, which tools take for an
    option."""
    while True:
        raw = bytearray(random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if int.from_bytes(raw, "big") >= RESERVED_IDS_COUNT and not uuid_to_text(bytes(raw)).startswith("-"):
            return bytes(raw)
