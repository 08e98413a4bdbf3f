"""What `barnabas doctor` says of log directories: identity, rights, a node that runs there, space, filesystem, times of files.

It reads names, small files and the state of locks, and writes nothing.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from broker.cli.doctor_findings import ADVICE, FINE, PROBLEM, Finding
from storage.errors import StorageError
from storage.files import CLEAN_SHUTDOWN_MARKER, LOCK_FILE, find_topic_partition
from storage.meta_properties import MetaProperties, read_meta_properties

if TYPE_CHECKING:
    from broker.cli.doctor_machine import Machine
    from config.server import ServerConfig

SPACE_MIN, SPACE_LOW = 0.05, 0.15
"""Of a volume that is free: a problem below the first, advice below the second."""
FILES_MIN = 0.05
CLOCK_STEP_MAX_S = 60.0

VOLATILE = ("tmpfs", "ramfs")
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuse.s3fs", "vboxsf", "virtiofs")
FLOCK = "hhqqi"
"""struct flock of Linux with 64 bits: type, whence, start, length, process."""


def examine_folders(folders: list[Path], config: ServerConfig | None, machine: Machine, now_s: float, findings: list[Finding]) -> int:
    """Adds what is found to `findings`. Returns the number of partitions in these folders."""
    identities: dict[Path, MetaProperties] = {}
    count = 0
    for folder in folders:
        usable = _examine_rights(folder, findings)
        findings += _examine_volume(folder if usable else _nearest(folder), folder, machine)
        if usable:
            findings += _examine_identity(folder, config, identities)
            findings += _examine_state(folder, now_s, is_formatted=folder in identities)
            count += sum(find_topic_partition(name) is not None for name in os.listdir(folder))
    clusters = {identity.cluster_id for identity in identities.values()}
    if len(clusters) > 1:
        found = ", ".join(f"{folder} of cluster {identity.cluster_id}" for folder, identity in identities.items())
        findings.append(Finding("data folder", PROBLEM, found, "all of a node's folders have to be of one cluster"))
    return count


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above that is there."""
    return next((each for each in (folder, *folder.absolute().parents) if each.is_dir()), Path("/"))


def _examine_rights(folder: Path, findings: list[Finding]) -> bool:
    """Whether it can be looked at."""
    if not folder.exists():
        above = _nearest(folder)
        if os.access(above, os.W_OK | os.X_OK):
            findings.append(Finding("data folder", ADVICE, f"{folder} is not there", "a start or `barnabas format` makes it"))
        else:
            findings.append(Finding("data folder", PROBLEM, f"{folder} is not there", f"make it: this user may not write in {above}"))
        return False
    if not folder.is_dir():
        findings.append(Finding("data folder", PROBLEM, f"{folder} is not a folder", "log.dirs has to name folders"))
        return False
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        owner = folder.stat().st_uid
        advice = f"give it to the broker's user; its owner is user {owner}, and this is user {os.geteuid()}"
        findings.append(Finding("data folder", PROBLEM, f"{folder} cannot be read and written", advice))
        return os.access(folder, os.R_OK | os.X_OK)
    return True


def _examine_identity(folder: Path, config: ServerConfig | None, identities: dict[Path, MetaProperties]) -> Iterator[Finding]:
    try:
        identity = read_meta_properties(folder)
    except (StorageError, OSError) as error:
        yield Finding("data folder", PROBLEM, str(error), "restore meta.properties: a start is refused")
        return
    if identity is None:
        has_partitions = any(find_topic_partition(name) is not None for name in os.listdir(folder))
        if has_partitions:
            yield Finding(
                "data folder", PROBLEM, f"{folder} has partitions and no meta.properties", "restore it from a backup of the folder"
            )
        elif config is not None and config.barnabas_auto_format:
            yield Finding("data folder", FINE, f"{folder} is empty, and is formatted at the next start")
        else:
            advice = "run `barnabas format -t CLUSTER_ID`, or set barnabas.auto.format=true"
            yield Finding("data folder", ADVICE, f"{folder} is not formatted", advice)
        return
    identities[folder] = identity
    if config is not None and identity.node_id != config.node_id:
        found = f"{folder} belongs to node {identity.node_id}, and node.id is {config.node_id}"
        yield Finding("data folder", PROBLEM, found, "set node.id, or log.dirs: a start is refused")
    else:
        yield Finding("data folder", FINE, f"{folder} is of node {identity.node_id} in cluster {identity.cluster_id}")


def _examine_state(folder: Path, now_s: float, *, is_formatted: bool) -> Iterator[Finding]:
    process = _process_that_locks(folder / LOCK_FILE)
    if process is not None:
        yield Finding("data folder", FINE, f"{folder} is in use by process {process}")
    elif is_formatted and not (folder / CLEAN_SHUTDOWN_MARKER).exists():
        yield Finding("data folder", ADVICE, f"{folder} was not closed by a clean stop", "nothing: the next start checks its logs")
    newest = max(map(_changed_s, folder.iterdir()), default=0.0)
    if newest > now_s + CLOCK_STEP_MAX_S:
        found = f"{folder} was written {newest - now_s:.0f} s after what this machine's clock shows now"
        yield Finding("clock", PROBLEM, found, "set the clock: retention and timestamps count by it")


def _changed_s(path: Path) -> float:
    """When the file was changed; 0 for one that is gone, as those of a running broker may be."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _process_that_locks(path: Path) -> int | None:
    """The process that holds the lock, which is not taken: 0 for one that this process does not see, None if there is none or it is not
    known."""
    if sys.platform != "linux":
        return None
    try:
        with path.open("rb") as file:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return None
    kind, _, _, _, process = struct.unpack(FLOCK, answer)
    return None if kind == fcntl.F_UNLCK else process


def _examine_volume(path: Path, folder: Path, machine: Machine) -> Iterator[Finding]:
    """`path` is there, and on the volume of `folder`."""
    status = os.statvfs(path)
    share = status.f_bavail / status.f_blocks if status.f_blocks else 1.0
    found = f"{share:.0%} of the volume of {folder} is free, {status.f_bavail * status.f_frsize / 1e9:.1f} GB"
    advice = "a log directory whose disk is full fails: make room, or lower retention.ms and retention.bytes"
    yield (
        Finding("disk space", PROBLEM, found, advice)
        if share < SPACE_MIN
        else (Finding("disk space", ADVICE, found, advice) if share < SPACE_LOW else Finding("disk space", FINE, found))
    )
    if status.f_files and status.f_favail / status.f_files < FILES_MIN:
        found = f"the volume of {folder} has room for {status.f_favail} more files"
        yield Finding("disk space", PROBLEM, found, "each segment has four: make room, or raise segment.bytes")
    yield _judge_filesystem(folder, machine.filesystem_of(path.absolute()))


def _judge_filesystem(folder: Path, kind: str) -> Finding:
    found = f"{folder} is on {kind or 'a filesystem of unknown type'}"
    if kind in VOLATILE:
        return Finding("filesystem", PROBLEM, found, "records are lost when the machine stops: use a disk")
    if kind in REMOTE:
        advice = "flushes and locks are another machine's promise there: use a disk of this machine, as for Apache Kafka"
        return Finding("filesystem", PROBLEM, found, advice)
    if kind == "overlay":
        return Finding("filesystem", ADVICE, found, "in a container the data go when the container goes: mount a volume")
    return Finding("filesystem", FINE, found)
