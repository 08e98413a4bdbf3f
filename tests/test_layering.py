"""Imports point one way: each folder may use what is below it (docs/architecture.md). An arrow the other way fails here, and so does a
cycle, inside a folder too."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from tests.support.imports import MODULES, all_imports, covers, find_cycles, imports_at_run_time, module_name
from tests.support.sources import ROOT, nodes_of

PROTOCOL_FOR_STORAGE = (
    "protocol.checksum",
    "protocol.records",
    "protocol.errors",
    "protocol.compression",
    "protocol.record_outlines",
    "protocol.record_spans",
    "protocol.uuids",
    "protocol.varint",
    "protocol.messages.stored",
    "protocol.codec",
)
REPLICATION = ("broker.replication", "broker.metadata", "broker.groups", "broker.telemetry", "broker.transactions")
STATE_MACHINE_FACTS = (
    "broker.loop.clock",
    "broker.loop.deferred",
    "broker.loop.job",
    "broker.loop.recent_times",
    "broker.loop.turns",
    "broker.observability.limited_log",
    "broker.observability.log_fields",
    "broker.network.answer_size",
)
FACTS = (
    *STATE_MACHINE_FACTS,
    "broker.loop.blocking",
    "broker.network.context",
    "broker.observability.logger_levels",
    "broker.observability.metrics",
)
READING = ("storage.file_slice", "storage.page_cache")

# Folder or module → what of our own it may import. The most specific entry counts; a name covers what is inside it.
ALLOWED: dict[str, tuple[str, ...]] = {
    "protocol": ("protocol",),
    "config": ("config",),
    "storage": ("storage", "config", *PROTOCOL_FOR_STORAGE),
    "pipeline": ("pipeline", "config", "barnabas.spark"),
    "barnabas": ("barnabas",),  # what users import runs in their process, without our folders; its own modules are imported relatively
    "barnabas.spark": ("barnabas.spark", "protocol"),  # `barnabas.protocol` there, which is the same folder
    # A client of the wire: it uses of the broker's only its own commands' client and what reads key stores. `log` reads a data folder by
    # the declarations of its files, and not with what the broker reads them with; the audit needs neither Spark nor pyarrow.
    "barnabas.cli": (
        "barnabas.cli",
        "barnabas.spark.log.audit",
        "broker.cli.client_security",
        "broker.cli.one_line_parser",
        "broker.cli.wire_client",
        "broker.metadata.feature_levels",  # tables of Kafka's releases
        "broker.metadata.features",
        "broker.security.authorizer.acl_codes",
        "broker.security.tls",
        "broker.server.listener_security",
        "broker.server.version",
        "config",
        "protocol",
        "storage.files",
        "storage.formats",
    ),
    "barnabas.cli.console": ("barnabas.cli", "barnabas.console"),
    # It shows what the client commands ask, and polls by their wire client.
    "barnabas.console": ("barnabas.cli", "barnabas.console", "broker.cli.wire_client", "protocol"),
    "barnabas.__main__": ("barnabas.cli.main", "broker.cli.main"),  # the launcher runs in a process of its own
    "broker.loop": ("broker.loop",),
    "broker.loop.cold_reads": ("broker.loop", "storage.page_cache"),
    "broker.observability": ("broker.observability", "broker.loop.clock", "protocol.errors"),
    "broker.network.answer_size": ("protocol.errors",),
    "broker.network.context": ("broker.loop.cpu_time", "protocol.apis"),
    "broker.handlers.services": ("broker.loop.blocking", "broker.network.context", "broker.loop.deferred"),
    "broker.descriptors": (),
    "broker.background": ("broker.background", "broker.replication", "broker.worker.jobs", *FACTS, "storage", "protocol.errors", "config"),
    "broker.worker": ("broker.worker", "broker.loop.clock", "broker.loop.deferred"),  # a job's module is imported by its name
    "broker.replication": (
        "broker.replication",
        "broker.worker.jobs",
        "broker.metadata",
        "broker.loop.cold_reads",
        *FACTS,
        "storage",
        "protocol",
        "config",
    ),
    "broker.coordination": (
        "broker.coordination",
        "broker.replication",
        "broker.metadata",
        "broker.loop.cold_reads",
        *STATE_MACHINE_FACTS,
        "storage",
        "protocol",
    ),
    "broker.groups": ("broker.groups", "broker.coordination", "broker.metadata", *STATE_MACHINE_FACTS, "protocol", "config"),
    "broker.transactions": (
        "broker.transactions",
        "broker.coordination",
        "broker.metadata",
        *STATE_MACHINE_FACTS,
        "broker.observability.metrics",
        "storage.markers",
        "protocol",
        "config",
    ),
    "broker.security.authorizer": ("broker.security.authorizer", "protocol.errors", "protocol.messages", "storage.errors"),
    "broker.quorum": ("broker.quorum", *FACTS, "storage", "protocol", "config"),
    "broker.security.quotas.charge": ("broker.security.quotas", "broker.loop.clock", "broker.loop.cpu_time", "protocol.apis"),
    "broker.security.quotas": (
        "broker.security.quotas",
        "broker.loop.cpu_time",
        "protocol.client_quotas",
        "protocol.errors",
        "protocol.messages",
    ),
    "broker.metadata": (
        "broker.metadata",
        "broker.quorum",
        "broker.security.authorizer",
        "broker.security.credentials",
        "broker.security.quotas.client_quotas",
        *FACTS,
        "storage",
        "protocol",
        "config",
    ),
    # What this node asks of others. What a broker asks of the controller goes through the channel, and nothing else of it is known.
    "broker.cluster": (
        "broker.cluster",
        "broker.controller.channel",
        "broker.metadata",
        "broker.network.client",
        "broker.network.peer_traffic",
        "broker.network.sockets",
        "broker.platform",
        "broker.quorum",
        *FACTS,
        "protocol",
        "config",
    ),
    # Pure: neither the loop nor a handler. What looks up credentials and decodes requests is given by constructor.
    "broker.security.sasl": ("broker.security.sasl", "protocol.errors", "protocol.sasl", "config.properties"),
    "broker.security.credentials": (
        "broker.security.credentials",
        "broker.security.sasl.scram_server",
        "protocol.errors",
        "protocol.messages",
        "protocol.sasl.scram",
    ),
    "broker.security.tls": ("broker.security.tls", "config.properties"),
    "broker.telemetry": ("broker.telemetry", "broker.metadata", *FACTS, "protocol", "config"),
    "broker.controller": (
        "broker.controller",
        "broker.metadata",
        "broker.quorum",
        "broker.security.authorizer",
        "broker.security.credentials",
        "broker.security.quotas",
        *FACTS,
        "storage",
        "protocol",
        "config",
    ),
    "broker.handlers": (
        "broker.handlers",
        *REPLICATION,
        "broker.security.authorizer",
        "broker.security.credentials",
        "broker.security.quotas.client_quotas",
        "broker.security.quotas.quota_filter",
        *FACTS,
        "broker.loop.cold_reads",
        "storage.errors",
        *READING,
        "storage.log",
        "storage.markers",
        "storage.verification",
        "protocol",
        "config",
    ),
    # Network is given dispatch as a callback and never imports it; dispatch answers in network's terms.
    "broker.routes": ("broker.handlers", "broker.security.authorizer", *FACTS, "protocol"),
    "broker.dispatch": (
        "broker.handlers.services",
        "broker.security.authorizer",
        "broker.security.quotas.quota_managers",
        "broker.security.quotas.charge",
        "broker.network.request_pipeline",
        "broker.routes",
        *FACTS,
        "storage.errors",
        "protocol",
        "config",
    ),
    "broker.network": (
        "broker.network",
        "broker.loop.cpu_time",
        "broker.security.sasl",
        "broker.security.tls.layer",
        *FACTS,
        *READING,
        "protocol",
        "config",
    ),
    "broker.platform": (
        "broker.loop.blocking",
        "broker.loop.clock",
        "broker.descriptors",
        "broker.network.sockets",
        "broker.worker",
        "storage.disk",
    ),
    # What builds the collaborators: nothing else may import them all. The quorum's part knows of no client and no partition.
    "broker.server": ("broker", "storage", "protocol", "config"),
    "broker.server.formatting": ("storage", "protocol", "config"),
    "broker.server.gauges": ("broker.observability.metrics", "broker.quorum.raft_state", "broker.server.node_gauges", "protocol.errors"),
    "broker.server.metrics_http": (
        "broker.loop.clock",
        "broker.network.listening_sockets",
        "broker.observability.limited_log",
        "broker.observability.metrics",
        "protocol",
    ),
    "broker.server.node": (
        "broker.descriptors",
        "broker.loop.cpu_time",
        "broker.platform",
        "broker.security.quotas.quota_managers",
        *FACTS,
        "protocol",
        "config",
    ),
    "broker.server.quorum_server": (
        "broker.cluster",
        "broker.controller",
        "broker.dispatch",
        "broker.handlers.services",
        "broker.metadata",
        "broker.network.listeners",
        "broker.quorum",
        "broker.security.authorizer",
        "broker.server.formatting",
        "broker.server.node",
        "broker.server.quota_keeper",
        *FACTS,
        "protocol",
        "config",
    ),
    "broker.cli.formatter": (
        "broker.server.formatting",
        "broker.metadata",
        "broker.quorum",
        "broker.security.credentials",
        "broker.security.sasl.scram_arguments",
        "storage",
        "protocol",
        "config",
    ),
    "broker.cli": (
        "broker.cli",
        "broker.security",
        "broker.server.formatting",
        "broker.server.listener_security",
        "broker.server.oauthbearer_login",
        "broker.server.process",
        "broker.server.server",
        "broker.server.version",
        "pipeline.cli",
        "storage.disk",
        "storage.errors",
        "storage.files",
        "storage.meta_properties",
        "protocol",
        "config",
    ),
}

INSTALLED = ("broker", "config", "pipeline", "protocol", "storage")  # beside the modules of barnabas/, in a wheel


def test_imports_point_down() -> None:
    upward = {
        f"{module_name(path)} may not import {imported}"
        for path in MODULES
        for imported in imports_at_run_time(path)
        if not any(covers(name, imported) for name in allowed_for(module_name(path)))
    }

    assert not upward


def allowed_for(module: str) -> tuple[str, ...]:
    """By the most specific entry."""
    rules = [name for name in ALLOWED if covers(name, module)]
    return ALLOWED[max(rules, key=len)] if rules else ()


def test_cycles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"e"}}

    assert find_cycles(graph) == {frozenset({"b", "c"}), frozenset({"e"})}


def test_no_modules_import_each_other() -> None:
    """Neither for types only nor inside a function."""
    assert find_cycles(all_imports()) == set()


def test_what_users_import_needs_python_s_library_only() -> None:
    """The plugin, which pytest imports, may have pytest; the launcher is for a process of ours."""
    for module in (ROOT / "barnabas").glob("*.py"):
        allowed = {"pytest_plugin.py": "pytest", "__main__.py": "broker"}.get(module.name)
        foreign = absolute_imports(module) - sys.stdlib_module_names - {allowed}
        assert not foreign, f"{module.name} imports {foreign}"


def absolute_imports(path: Path) -> set[str]:
    """The top-level names of what a file imports wherever, but for relative imports."""
    names: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_modules_of_the_package_hide_no_other() -> None:
    """The launcher's process has the installed package's folder on its path, and our folders' names lie in the package."""
    names = {path.stem for path in (ROOT / "barnabas").glob("*.py")} - {"__init__", "__main__"}

    assert not names & (sys.stdlib_module_names | set(INSTALLED))
    assert not {name for name in names if not name.startswith("_")} - {"pytest_plugin"}


def test_nothing_imports_a_folder_as_part_of_the_package() -> None:
    """In a wheel `barnabas.storage.log` would be a second copy of `storage.log`, with classes of its own."""
    twins = [f"barnabas.{folder}" for folder in INSTALLED]

    assert [path for path in MODULES for name in imports_at_run_time(path) if any(covers(twin, name) for twin in twins)] == []
