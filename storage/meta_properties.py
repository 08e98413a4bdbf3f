"""The small identity files: `meta.properties` and `.kafka_cleanshutdown` of a log directory, `partition.metadata` of a partition.

No state. `meta.properties` has the ids of cluster, node and directory; it is written once, when the directory is formatted. The
clean-shutdown marker exists only between a clean stop and the next start. `partition.metadata` binds a partition's directory to its topic's
id and is written before the first batch. (MetaProperties, CleanShutdownFileHandler, PartitionMetadataFile)
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from config.loading import parse_properties
from protocol.uuids import ZERO_UUID, uuid_from_text, uuid_to_text
from storage.disk import SYSTEM_DISK, Disk
from storage.errors import CorruptFileError, StorageError
from storage.files import (
    CLEAN_SHUTDOWN_MARKER,
    META_PROPERTIES,
    PARTITION_METADATA,
    delete_if_exists,
    read_text_file,
    replace_file,
    sync_directory,
)

META_PROPERTIES_VERSION = 1
CLEAN_SHUTDOWN_VERSION = 0
PARTITION_METADATA_VERSION = 0
NO_BROKER_EPOCH = -1

_COLON = re.compile(r":\s+")
_ESCAPED = re.compile(r"[\\=:#!]|^ ")


class MetaProperties(NamedTuple):
    """A formatted log directory's identity. `directory_id` is 16 raw bytes, None in directories of old Kafka versions."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None


def read_meta_properties(log_directory: Path, disk: Disk = SYSTEM_DISK) -> MetaProperties | None:
    """Returns the identity, or None when the directory was never formatted.

    CorruptFileError when a line is missing or wrong, or for version 0, which only ZooKeeper brokers wrote.
    """
    path = log_directory / META_PROPERTIES
    text = read_text_file(path, disk)
    if text is None:
        return None
    try:
        properties = parse_properties(text)
        if properties.get("version", "0") != str(META_PROPERTIES_VERSION):
            raise ValueError(f"version {properties.get('version', '0')} is not supported")
        directory_id = properties.get("directory.id")
        return MetaProperties(
            cluster_id=properties["cluster.id"],
            node_id=int(properties["node.id"]),
            directory_id=None if directory_id is None else uuid_from_text(directory_id),
        )
    except KeyError as error:
        raise CorruptFileError(f"{path} has no {error.args[0]}", path=path) from error
    except ValueError as error:
        raise CorruptFileError(f"malformed {path}: {error}", path=path) from error


def write_meta_properties(log_directory: Path, meta: MetaProperties, disk: Disk = SYSTEM_DISK) -> None:
    """Writes the file durably. Java's comment with the date is left out: it is never read."""
    properties = {"node.id": str(meta.node_id), "version": str(META_PROPERTIES_VERSION), "cluster.id": meta.cluster_id}
    if meta.directory_id is not None:
        properties["directory.id"] = uuid_to_text(meta.directory_id)
    replace_file(log_directory / META_PROPERTIES, format_properties(properties).encode(), disk=disk)


def format_properties(properties: dict[str, str]) -> str:
    """Returns lines that a Java properties reader reads back as these pairs."""
    return "".join(f"{_escape(key)}={_escape(value)}\n" for key, value in properties.items())


def read_clean_shutdown(log_directory: Path, disk: Disk = SYSTEM_DISK) -> int | None:
    """Returns the broker epoch of the clean stop before this start; None when the stop was not clean.

    A marker whose content cannot be read (Kafka before 3.8 wrote an empty one) is still a clean stop, of epoch -1.
    """
    path = log_directory / CLEAN_SHUTDOWN_MARKER
    try:
        text = read_text_file(path, disk)
        if text is None:
            return None
        content = json.loads(text)
        return int(content["brokerEpoch"])
    except (ValueError, KeyError, TypeError, CorruptFileError):
        return NO_BROKER_EPOCH


def write_clean_shutdown(log_directory: Path, *, broker_epoch: int = NO_BROKER_EPOCH, disk: Disk = SYSTEM_DISK) -> None:
    """Marks the stop as clean, durably: the last thing done in a log directory, after every log was flushed."""
    content = json.dumps({"version": CLEAN_SHUTDOWN_VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    replace_file(log_directory / CLEAN_SHUTDOWN_MARKER, content.encode(), disk=disk)


def delete_clean_shutdown(log_directory: Path, disk: Disk = SYSTEM_DISK) -> None:
    """Removes the marker, durably, before the first append: after it, a crash must be seen as one."""
    if delete_if_exists(log_directory / CLEAN_SHUTDOWN_MARKER, disk):
        sync_directory(log_directory, disk=disk)


def read_partition_metadata(partition_directory: Path, disk: Disk = SYSTEM_DISK) -> bytes | None:
    """Returns the topic's id as 16 raw bytes, or None when there is no file; CorruptFileError when it says nothing usable."""
    path = partition_directory / PARTITION_METADATA
    text = read_text_file(path, disk)
    if text is None:
        return None
    try:
        version_line, topic_id_line = text.splitlines()[:2]
        _, version = _COLON.split(version_line)
        _, topic_id_text = _COLON.split(topic_id_line)
        if int(version) < PARTITION_METADATA_VERSION:
            raise ValueError(f"version {version}")
        topic_id = uuid_from_text(topic_id_text)
        if topic_id == ZERO_UUID:
            raise ValueError("the topic id is zero")
    except ValueError as error:
        raise CorruptFileError(f"malformed {path}: {error}", path=path) from error
    return topic_id


def write_partition_metadata(partition_directory: Path, topic_id: bytes, *, fsync: bool = True, disk: Disk = SYSTEM_DISK) -> None:
    """Binds the directory to the topic id; StorageError when it is bound to another one already.

    `fsync=False` is for a caller that makes the whole filesystem durable before it answers.
    """
    known = read_partition_metadata(partition_directory, disk)
    if known == topic_id:
        return
    path = partition_directory / PARTITION_METADATA
    if known is not None:
        raise StorageError(f"{path} names topic id {uuid_to_text(known)}, not {uuid_to_text(topic_id)}", path=path)
    replace_file(path, f"version: {PARTITION_METADATA_VERSION}\ntopic_id: {uuid_to_text(topic_id)}".encode(), fsync=fsync, disk=disk)


def _escape(text: str) -> str:
    escaped = _ESCAPED.sub(lambda match: "\\" + match[0], text)
    return escaped.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
