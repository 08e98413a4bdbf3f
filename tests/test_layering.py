"""Imports point one way: each folder may use what is below it (docs/architecture.md). An arrow the other way fails here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PROTOCOL_FOR_STORAGE = (
    "protocol.checksum",
    "protocol.records",
    "protocol.errors",
    "protocol.compression",
    "protocol.record_outlines",
    "protocol.uuids",
    "protocol.messages.stored",
    "protocol.codec",
)
REPLICATION = ("broker.replication", "broker.metadata", "broker.groups", "broker.transactions")
TURNS = ("broker.turns", "broker.pieces", "broker.answer_size")
FACTS = ("broker.clock", "broker.deferred", "broker.context", "broker.metrics", "broker.limited_log", "broker.log_fields", *TURNS)
READING = ("storage.file_slice", "storage.page_cache")

# Folder or module → what of our own it may import. The most specific entry counts; a name covers what is inside it.
ALLOWED: dict[str, tuple[str, ...]] = {
    "protocol": ("protocol",),
    "config": ("config",),
    "storage": ("storage", "config", *PROTOCOL_FOR_STORAGE),
    "pipeline": ("pipeline", "config"),
    "broker": (*FACTS, "storage", "protocol", "config"),  # what server.py builds beside the rooms
    "broker.clock": (),
    "broker.deferred": (),
    "broker.metrics": (),
    "broker.limited_log": ("broker.clock",),
    "broker.log_fields": (),
    "broker.logs": ("broker.log_fields",),
    "broker.turns": ("broker.deferred",),
    "broker.pieces": ("broker.turns",),
    "broker.answer_size": ("protocol.errors",),
    "broker.metrics_gauges": ("broker.metrics", "protocol.errors"),
    "broker.metrics_http": ("broker.clock", "broker.limited_log", "broker.metrics", "broker.network.listening_sockets", "protocol"),
    "broker.context": ("broker.clock", "broker.deferred"),
    "broker.new_partition_wait": ("broker.context",),
    "broker.cold_reads": ("broker.deferred", "storage.page_cache"),
    "broker.replication": (
        "broker.replication",
        "broker.metadata",
        "broker.turns",
        "broker.cold_reads",
        *FACTS,
        "storage",
        "protocol",
        "config",
    ),
    "broker.groups": ("broker.groups", "broker.replication", "broker.metadata", *FACTS, "storage", "protocol", "config"),
    "broker.metadata": ("broker.metadata", *FACTS, "storage", "protocol", "config"),
    "broker.handlers": (
        "broker.handlers",
        *REPLICATION,
        *FACTS,
        "broker.cold_reads",
        "broker.new_partition_wait",
        "broker.turns",
        "storage.errors",
        *READING,
        "storage.log",
        "protocol",
        "config",
    ),
    # Network is given dispatch as a callback and never imports it; dispatch answers in network's terms.
    "broker.dispatch": (
        "broker.handlers",
        "broker.network.connection",
        "broker.network.request_pipeline",
        *FACTS,
        "storage.errors",
        "protocol",
        "config",
    ),
    "broker.network": ("broker.network", *FACTS, *READING, "protocol", "config"),
    "broker.server": ("broker", "storage", "protocol", "config"),
    "broker.cli": (
        "broker.cli",
        "broker.server",
        "pipeline.cli",
        "storage.errors",
        "storage.meta_properties",
        "protocol.uuids",
        "config",
        "barnabas",
    ),
}

FOLDERS = ("protocol", "config", "storage", "broker", "pipeline", "barnabas", "tests", "bench")
MODULES = sorted(path for folder in FOLDERS[:5] for path in (ROOT / folder).rglob("*.py"))


def covers(name: str, module: str) -> bool:
    return module == name or module.startswith(name + ".")


def imports_at_run_time(path: Path) -> set[str]:
    """Our own modules that `path` imports, wherever in the file, but for those that only type checkers read."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    imported: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            is_package = (ROOT / node.module.replace(".", "/")).is_dir()
            imported |= {f"{node.module}.{alias.name}" for alias in node.names} if is_package else {node.module}
    return {module for module in imported if module.partition(".")[0] in FOLDERS}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    rules = [name for name in ALLOWED if covers(name, module)]
    allowed = ALLOWED[max(rules, key=len)] if rules else ()

    upward = {imported for imported in imports_at_run_time(path) if not any(covers(name, imported) for name in allowed)}

    assert not upward, f"{module} may not import {', '.join(sorted(upward))}"
