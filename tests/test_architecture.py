"""docs/architecture.md's map for readers of Kafka's source names only what exists."""

from __future__ import annotations

import ast
import re

from tests.support.sources import ROOT, tree_of

REFERENCE = re.compile(r"`([a-z_/]+\.py):([A-Za-z_.]+)`")
REFERENCES = sorted(set(REFERENCE.findall((ROOT / "docs" / "architecture.md").read_text())))


def names_of(path: str) -> set[str]:
    """Functions, classes and methods (`Class.method`) that the file defines."""
    names = set()
    for node in tree_of(ROOT / path).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)}
    return names


def test_what_the_map_names_exists() -> None:
    assert len(REFERENCES) > 60, "the map is not there"
    assert not [f"{path}:{name}" for path, name in REFERENCES if name not in names_of(path)]
