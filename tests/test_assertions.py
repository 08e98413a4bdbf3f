"""Every test can fail: it asserts, or calls a helper that does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.sources import tree_of

TESTS = Path(__file__).parent
ASSERTING_METHODS = ("assert_", "expect", "check", "to_be_", "to_contain_", "to_have_")
"""How the names of methods begin whose work is to assert; to_… are playwright's.
Others' assertions are about their own use, and no test's."""
RAISING = ("raises", "fail", "warns")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """One file of the tests: its functions, and what its names mean."""

    def __init__(self, path: Path) -> None:
        body = tree_of(path).body
        self.functions = {node.name: node for node in body if isinstance(node, Function)}
        self.methods = [node for owner in body if isinstance(owner, ast.ClassDef) for node in owner.body if isinstance(node, Function)]
        self.imported = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in body
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }


@cache
def modules() -> dict[str, Module]:
    return {".".join(("tests", *path.relative_to(TESTS).with_suffix("").parts)): Module(path) for path in sorted(TESTS.rglob("*.py"))}


ASSERTING: set[ast.AST] = set()
"""Functions that were found to assert, since most are called by many tests. The others are not kept: a circle may have hidden the call."""


def asserts(function: ast.AST, module: Module, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether `function` holds an assertion, or calls a function of the tests that does."""
    if function in ASSERTING:
        return True
    if function in seen or not finds_assertion(function, module, seen):
        return False
    ASSERTING.add(function)
    return True


def finds_assertion(function: ast.AST, module: Module, seen: frozenset[ast.AST]) -> bool:
    for node in walk(function):
        if isinstance(node, ast.Assert):
            return True
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Attribute) and (called.attr in RAISING or called.attr.startswith(ASSERTING_METHODS)):
            return True
        if isinstance(called, ast.Name):
            helper, owner = find_function(called.id, module)
            if helper is not None and asserts(helper, owner, seen | {function}):
                return True
    return False


def walk(function: ast.AST) -> Iterator[ast.AST]:
    """Its nodes, without lambdas: they are called by somebody else, who may swallow what they raise."""
    found = [function]
    for node in found:
        yield node
        found += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.Lambda)]


def find_function(name: str, module: Module) -> tuple[Function | None, Module]:
    if name in module.functions:
        return module.functions[name], module
    source, original = module.imported.get(name, ("", ""))
    owner = modules().get(source)
    return (None, module) if owner is None else find_function(original, owner)


@pytest.mark.long("parses all tests")
def test_every_test_asserts() -> None:
    without = [
        f"{name}: {function.name}"
        for name, module in modules().items()
        if name.rpartition(".")[2].startswith("test_")
        for function in (*module.functions.values(), *module.methods)
        if function.name.startswith("test_") and not asserts(function, module)
    ]

    assert without == []
