"""The JSON of kafka-reassign-partitions: {"version": 1, "partitions": [{"topic": …, "partition": 0, "replicas": [1, 2], "log_dirs": [… or
"any"]}]}."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.cli.errors import NotUnderstoodError
from barnabas.cli.reassignment.plan import Assignment, Partition

VERSION = 1
ANY = "any"
STDIN = "-"
Directories = dict[tuple[Partition, int], str]
"""The log directory that a replica on that broker is to be in."""


class PlanFile(NamedTuple):
    replicas: Assignment
    directories: Directories


def read_plan(path: str) -> PlanFile:
    """Of a file, or of standard input, `-`. Raises NotUnderstoodError, which names the fault."""
    try:
        entries = _entries(json.loads(sys.stdin.read() if path == STDIN else Path(path).read_text()))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as e:
        raise NotUnderstoodError(f"{path}: {e}") from e
    except ValueError as e:
        raise NotUnderstoodError(f"{path} is no plan as kafka-reassign-partitions has it: {e}") from e
    return entries


def write_plan(path: Path, replicas: Mapping[Partition, Sequence[int]]) -> None:
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(brokers), "log_dirs": [ANY] * len(brokers)}
        for (topic, index), brokers in sorted(replicas.items())
    ]
    path.write_text(json.dumps({"version": VERSION, "partitions": partitions}) + "\n")


def _entries(document: Any) -> PlanFile:
    """Raises ValueError."""
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise ValueError("an object with a list of `partitions`")
    if document.get("version", VERSION) != VERSION:
        raise ValueError(f"version {document['version']}, and {VERSION} is known")
    plan = PlanFile({}, {})
    for entry in document["partitions"]:
        each, replicas, directories = _entry(entry)
        if each in plan.replicas:
            raise ValueError(f"{each[0]}-{each[1]} is there twice")
        plan.replicas[each] = replicas
        plan.directories.update({(each, broker): name for broker, name in zip(replicas, directories, strict=True) if name != ANY})
    if not plan.replicas:
        raise ValueError("no partitions")
    return plan


def _entry(entry: Any) -> tuple[Partition, list[int], list[str]]:
    match entry:
        case {"topic": str() as topic, "partition": int() as index, "replicas": [*replicas]}:
            pass
        case _:
            raise ValueError(f"{json.dumps(entry)[:100]} has no `topic`, `partition` and `replicas`")
    if not replicas or not all(type(broker) is int and broker >= 0 for broker in replicas) or len({*replicas}) < len(replicas):
        raise ValueError(f"{topic}-{index}: replicas {replicas}: they are the ids of different brokers")
    directories = entry.get("log_dirs") or [ANY] * len(replicas)
    if not isinstance(directories, list) or len(directories) != len(replicas) or not all(isinstance(name, str) for name in directories):
        raise ValueError(f"{topic}-{index}: log_dirs are as many as replicas: paths, or {ANY!r}")
    return (topic, index), replicas, directories
