"""The page of what each API does here: the docstrings of its handlers, in the order of the API keys."""

from __future__ import annotations

import ast
import re

from protocol.apis import APIS, Api
from tests.support.sources import ROOT


def apis_page(head: str) -> str:
    return head + "".join(_part(api) for api in sorted(APIS.values(), key=lambda api: api.key))


def contract(api: Api) -> str:
    """What its handler's file says first."""
    source = ROOT / "broker" / "handlers" / api.family / f"{api.stem}.py"
    return ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""


def _part(api: Api) -> str:
    lines = []
    for line in contract(api).splitlines():
        if line.startswith("- ") and lines and lines[-1] and not lines[-1].startswith("- ") and lines[-1].endswith(":"):
            lines.append("")  # a list needs a blank line before it
        lines.append(line)
    text = re.sub(r"<(?=[a-z])", r"\\<", "\n".join(lines))
    return f"\n## {api.name}\n\nKey {api.key}.\n\n{text}\n"
