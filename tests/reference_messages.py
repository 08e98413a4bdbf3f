"""The page of the log's warnings and errors: found in the code, with what to do from docs/reference/advice.toml.

A message is found by its call, as `logger.warning("cannot write %s: %s", …)`; what varies is shown as `…`. Advice is required of every
one, so that a new warning comes with what its reader shall do. One with a traceback is a defect if nothing else is said.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.sources import ROOT

ADVICE = ROOT / "docs" / "reference" / "advice.toml"
FOLDERS = ("broker", "config", "storage")
DEFECTS = "Defects of Barnabas"
DEFECT = "With a traceback: please report it, with the lines before it. The broker goes on."
_LEVELS = {"warning": "warning", "error": "error", "exception": "error", "critical": "critical"}
_VARYING = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[sdrf]")


@dataclass(frozen=True, slots=True)
class Message:
    """One kind of line. `has_traceback`: by `logger.exception`."""

    text: str
    level: str
    has_traceback: bool


def messages() -> list[Message]:
    """Those of the broker's own folders, without the ones that are told at a start and end it: these are in "Troubleshooting"."""
    found = {}
    for path in sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        for message in _of_file(path):
            found.setdefault(message.text, message)
    return sorted(found.values(), key=lambda message: message.text.lower())


def _of_file(path: Path) -> Iterator[Message]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = _constants(tree)
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _LEVELS):
            continue
        receiver = ast.unparse(call.func.value)
        if not receiver.lower().endswith(("log", "logger")) or not call.args:
            continue
        # An object's log is a LimitedLog, whose first argument is the kind of line.
        text = call.args[1] if "." in receiver else call.args[0]
        # `line` is one of several constants of the module: all that look like messages, then.
        named = [constants[text.id]] if isinstance(text, ast.Name) and text.id in constants else None
        if named is None:
            named = [text.value] if isinstance(text, ast.Constant) else [each for each in constants.values() if "%s" in each]
        for each in named:
            yield Message(_VARYING.sub("…", each), _LEVELS[call.func.attr], call.func.attr in ("exception", "critical"))


def _constants(tree: ast.Module) -> dict[str, str]:
    """Texts that have a name, in the module or in a function."""
    return {
        node.targets[0].id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def advice() -> dict[str, dict[str, str]]:
    """What to do, by area and message."""
    return tomllib.loads(ADVICE.read_text(encoding="utf-8"))


def messages_page(head: str) -> str:
    known = {message.text: message for message in messages()}
    told = {text for area in advice().values() for text in area}
    areas = advice()
    areas[DEFECTS] |= {text: DEFECT for text, message in known.items() if message.has_traceback and text not in told}
    page = head
    for area, lines in areas.items():
        page += f"\n## {area}\n\n| message | level | what it means, and what to do |\n| --- | --- | --- |\n"
        for text in (text for text in lines if text in known):
            page += f"| `{text.replace('`', '').replace('|', chr(92) + '|')}` | {known[text].level} | {lines[text].strip()} |\n"
    return page
