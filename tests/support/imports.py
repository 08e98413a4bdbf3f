"""What our own modules import, read from their source, and what follows from it: cycles, and the arrows that say it all."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.support.sources import ROOT, nodes_of

FOLDERS = ("protocol", "config", "storage", "broker", "pipeline", "barnabas", "tests", "bench")
MODULES = sorted(path for folder in FOLDERS[:6] for path in (ROOT / folder).rglob("*.py"))
"""The files of production code."""


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def covers(name: str, module: str) -> bool:
    return module == name or module.startswith(name + ".")


@cache
def imports_at_run_time(path: Path) -> frozenset[str]:
    """Our own modules that `path` imports, wherever in the file, but for those that only type checkers read."""
    nodes = nodes_of(path)
    typing_only = {
        id(node)
        for block in nodes
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    imported: set[str] = set()
    for node in nodes:
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _base(path, node)
            is_package = (ROOT / base.replace(".", "/")).is_dir()
            imported |= {f"{base}.{alias.name}" for alias in node.names} if is_package else {base}
    return frozenset(module for module in imported if module.partition(".")[0] in FOLDERS)


def all_imports() -> dict[str, set[str]]:
    """Each module of production code with those that it imports, wherever in the file and for whatever purpose."""
    modules = {module_name(path): path for path in MODULES}
    return {name: set(_imported_names(path) & modules.keys()) for name, path in modules.items()}


@cache
def _imported_names(path: Path) -> frozenset[str]:
    imported: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _base(path, node)
            imported |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return frozenset(imported)


def _base(path: Path, node: ast.ImportFrom) -> str:
    """The module from which is imported. barnabas/protocol is a link to protocol/ (barnabas/spark/__init__.py)."""
    if not node.level:
        return node.module or ""
    package = path.relative_to(ROOT).parts[:-1]
    parts = [*package[: len(package) - node.level + 1], *(node.module.split(".") if node.module else [])]
    return ".".join(parts[1:] if parts[:2] == ["barnabas", "protocol"] else parts)


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    """What `start` leads to; itself only if there is a way back."""
    seen: set[str] = set()
    pending = [start]
    while pending:
        for target in graph[pending.pop()] - seen:
            seen.add(target)
            pending.append(target)
    return seen


def find_cycles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The groups of nodes that reach each other."""
    reach = {node: reachable(graph, node) for node in graph}
    return {frozenset(other for other in reach[node] if node in reach[other]) for node in graph if node in reach[node]}


def without_shortcuts(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The transitive reduction: an arrow goes where other arrows lead to the same place. `graph` has no cycles."""
    reach = {node: reachable(graph, node) for node in graph}
    return {node: {target for target in targets if not any(target in reach[other] for other in targets)} for node, targets in graph.items()}
