"""The secured cluster of `cluster up --secure`: as `secure init` makes one, on this machine, with the files in the cluster's folder.

    DIR/security.properties    what all nodes have in common: keys, TLS, SCRAM, ACLs; written last, so that what is there is complete

The nodes share DIR/keys: they have the same names. secured_folder.py has the other files.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from broker.cli.private_files import write_private
from broker.cli.secured_folder import (
    AUTHORITY_FILE,
    make_authority,
    make_client_files,
    make_keys,
    new_passwords,
    read_passwords,
    security_settings,
)
from config.server import ServerConfig
from storage.files import replace_file
from storage.meta_properties import read_meta_properties

SETTINGS_FILE = "security.properties"
HOST = "localhost"
SERVERS = "bootstrap.servers="


def secure(directory: Path) -> None:
    """Make the files of a new cluster; nothing where they are. Raises FileExistsError where only some of them are; OSError."""
    if (directory / SETTINGS_FILE).exists():
        return
    from broker.cli.authority import LOCAL_NAMES  # late: cryptography takes 0.2 s to import

    passwords = new_passwords()
    make_keys(directory, make_authority(directory, _now_ms()), HOST, LOCAL_NAMES)
    make_client_files(directory, "", passwords.administrator)
    settings = security_settings(directory, directory / AUTHORITY_FILE, passwords.nodes)
    write_private(directory / SETTINGS_FILE, f"# Of each node of this cluster. This file has a password.\n{settings}")


def format_secured(config: ServerConfig, cluster_id: str, directory: Path) -> None:
    """Give a node's directory its identity and the cluster its first users, unless that is done. Raises FormatError, StorageError, OSError,
    and ConfigError for files without passwords."""
    from broker.cli.formatter import FormatOptions, format_node

    is_new = read_meta_properties(Path(config.metadata_log_dir)) is None
    users = read_passwords(directory, directory / SETTINGS_FILE).scram_users() if is_new else ()
    asked = FormatOptions(cluster_id, ignore_formatted=True, scram_users=users)
    format_node(config, asked, random_bytes=os.urandom, now_ms=_now_ms(), say=_say_nothing)


def tell_servers(directory: Path, bootstrap_servers: str) -> None:
    """Let the files of the folder's users name these brokers. Raises StorageError, OSError."""
    for path in directory.glob("*.properties"):
        lines = path.read_text().splitlines()
        told = [f"{SERVERS}{bootstrap_servers}" if line.startswith(SERVERS) else line for line in lines]
        if told != lines:
            replace_file(path, "".join(f"{line}\n" for line in told).encode())


def _now_ms() -> int:
    return int(time.time() * 1000)


def _say_nothing(text: str) -> None:
    """What `format` says has no place beside the one line of `cluster up`."""
