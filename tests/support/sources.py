"""Python sources as trees, parsed once a run: several tests read all of the product, or all of the tests."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@cache
def tree_of(path: Path) -> ast.Module:
    """The parsed file. Shared: callers do not change it."""
    enabled = gc.isenabled()
    gc.disable()  # trees are no garbage, and looking for some takes as long as parsing
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        if enabled:
            gc.enable()


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of the parsed file, as `ast.walk` has them."""
    return tuple(ast.walk(tree_of(path)))
