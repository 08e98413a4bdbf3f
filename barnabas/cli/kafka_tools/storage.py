"""kafka-storage info: whether the log directories of a configuration are formatted, and for what; exit code 1 if something is wrong.

`format` and `random-uuid` are `barnabas`' own commands. version-mapping and feature-dependencies are not here.

Source: StorageTool.infoCommand.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from barnabas.cli.errors import DONE, FAILED
from config.loading import load_server_config, read_properties
from config.properties import ConfigError
from storage.files import META_PROPERTIES

LEGACY = "The kafka configuration file appears to be for a cluster in KRaft mode, but the directories are formatted for legacy mode."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="whether the log directories are formatted")
    info.add_argument("--config", "-c", metavar="FILE", help="a server.properties")


def run(options: argparse.Namespace) -> int:
    config = load_server_config(options.config, os.environ, [])
    directories = sorted({*config.log_dirs, config.metadata_log_dir} - {""})
    found = [each for each in directories if Path(each).is_dir()]
    identities, problems = _read(directories)
    if found:
        print(f"Found log director{'y' if len(found) == 1 else 'ies'}:")
        print("".join(f"  {each}\n" for each in found))
    if identities:
        print(f"Found metadata: {{{', '.join(f'{key}={value}' for key, value in sorted(identities[0].items()))}}}\n")
        if identities[0]["version"] == "0":
            problems.append(LEGACY)
    if problems:
        print(f"Found problem{'' if len(problems) == 1 else 's'}:")
        print("".join(f"  {each}\n" for each in problems))
    return FAILED if problems else DONE


def _read(directories: Sequence[str]) -> tuple[list[dict[str, str]], list[str]]:
    """What is in the directories' meta.properties, and what is wrong."""
    identities: list[dict[str, str]] = []
    problems = []
    for directory in map(Path, directories):
        if not directory.is_dir():
            problems.append(f"{directory} {'is not a directory' if directory.exists() else 'does not exist'}")
        elif not (directory / META_PROPERTIES).exists():
            problems.append(f"{directory} is not formatted.")
        else:
            try:
                identity = {"version": "0"} | read_properties(directory / META_PROPERTIES)
            except ConfigError as e:
                problems.append(f"Error loading {directory / META_PROPERTIES}: {e}")
                continue
            if why := _fault(identity):
                problems.append(f"Error loading {directory / META_PROPERTIES}: {why}")
                continue
            identities.append(identity)
            if identity.get("cluster.id") != identities[0].get("cluster.id"):
                problems.append("Mismatched cluster IDs between storage directories.")
            elif identity.get("node.id") != identities[0].get("node.id"):
                problems.append("Mismatched node IDs between storage directories.")
    return identities, problems


def _fault(identity: dict[str, str]) -> str:
    """Why it is no identity of a node; "" if it is one (MetaProperties.Builder)."""
    if identity["version"] not in ("0", "1"):
        return f"Unknown meta.properties version number {identity['version']}"
    if identity["version"] == "0":
        return ""
    if "node.id" not in identity:
        return "Failed to find node.id"
    if not identity["node.id"].isdecimal():
        return "Unable to read node.id as a base-10 number."
    return "" if "cluster.id" in identity else "cluster.id was not found."
