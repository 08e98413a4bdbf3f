"""docs/architecture.md's map for readers of Kafka's source names only what exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
REFERENCE = re.compile(r"`([a-z_/]+\.py):([A-Za-z_.]+)`")
REFERENCES = sorted(set(REFERENCE.findall((CHECKOUT / "docs" / "architecture.md").read_text())))


def names_of(path: str) -> set[str]:
    """Functions, classes and methods (`Class.method`) that the file defines."""
    names = set()
    for node in ast.parse((CHECKOUT / path).read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)}
    return names


@pytest.mark.parametrize(("path", "name"), REFERENCES)
def test_what_the_map_names_exists(path: str, name: str) -> None:
    assert name in names_of(path)


def test_the_map_is_there() -> None:
    assert len(REFERENCES) > 60
