"""The drawing of the rooms in docs/architecture.md, made from the imports. `python -m tests.rooms` writes it anew.

An arrow goes from a room to one that it imports from, for types too. One that other arrows imply is left out.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.support.imports import all_imports, covers, find_cycles, without_shortcuts
from tests.support.sources import ROOT

DOCUMENT = ROOT / "docs" / "architecture.md"
COMMAND = "python -m tests.rooms"
DRAWING = re.compile(r"```mermaid\n.*?```\n", re.DOTALL)

SPARK = "barnabas.spark"
"""A room of its own: the pipeline, which the command imports, imports from it."""

FILES_OF_BROKER = {"dispatch": "dispatch routes", "platform": "platform descriptors"}
"""The files beside broker's folders, which stand in the drawing under these names."""

LABELS = {
    "broker_dispatch": "broker/dispatch.py, routes.py<br>KafkaApis",
    "broker_platform": "broker/platform.py<br>the machine",
}


def draw() -> str:
    """The drawing as Mermaid's text, in its fence."""
    arrows = without_shortcuts(rooms())
    lines = [f'    {room}["{LABELS.get(room, room.replace("_", "/") + "/")}"]' for room in sorted(arrows)]
    lines += [f"    {room} --> {target}" for room in sorted(arrows) for target in sorted(arrows[room])]
    return "\n".join(["```mermaid", "flowchart TD", *lines, "```", ""])


def rooms() -> dict[str, set[str]]:
    """Each room with the rooms that it imports from. Fails for a file that belongs to none, and where two rooms import each other."""
    graph: dict[str, set[str]] = {}
    for module, imported in all_imports().items():
        if module == "broker":
            continue
        room = room_of(module)
        graph.setdefault(room, set()).update({room_of(each) for each in imported if each != "broker"} - {room})
    cycles = find_cycles(graph)
    assert not cycles, f"rooms import each other: {[sorted(cycle) for cycle in cycles]}"
    return graph


def room_of(module: str) -> str:
    folder, _, inside = module.partition(".")
    if covers(SPARK, module):
        return "barnabas_spark"
    if folder != "broker":
        return folder
    name = inside.partition(".")[0]
    if (ROOT / "broker" / name).is_dir():
        return f"broker_{name}"
    for group, files in FILES_OF_BROKER.items():
        if name in files.split():
            return f"broker_{group}"
    raise AssertionError(f"broker/{name}.py belongs to no group of files: give it one in tests/rooms.py")


def drawn_in(text: str) -> str:
    """The drawing that a document has."""
    found = DRAWING.search(text)
    assert found, f"{DOCUMENT.name} has no drawing of the rooms"
    return found[0]


def write(document: Path) -> None:
    text = document.read_text()
    document.write_text(text.replace(drawn_in(text), draw()))


if __name__ == "__main__":
    write(DOCUMENT)
    sys.stdout.write(draw())
