"""The picture of a terminal on the first page: `python -m tests.pictures` draws docs/images/terminal.svg.

What it shows are the commands' own words: they run against a broker of its own, with the colors of a terminal. rich draws the picture; its
template is replaced by one that loads no font from the network.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence

from confluent_kafka import Consumer, Producer
from rich.console import Console
from rich.text import Text

import barnabas
from tests.support.sources import ROOT

PATH = ROOT / "docs" / "images" / "terminal.svg"
COLUMNS = 96
COMMANDS = (
    "barnabas topic create invoices --partitions 2",
    'echo "one book" | barnabas produce invoices --key anna',
    "barnabas topic list",
    "barnabas consume orders --tail 3 --exit -f 'partition %p, offset %o: %k %s\\n'",
    "barnabas group describe billing",
)
TEMPLATE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"><title>barnabas on a terminal</title>
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; line-height: {line_height}px }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def draw(shown: Sequence[tuple[str, str]]) -> str:
    """Commands and what they said, which may have a terminal's codes for colors, as SVG."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        for command, said in shown:
            console.print(Text("$ ", "green") + Text(command, "bold"))
            if said:
                console.print(Text.from_ansi(said.rstrip("\n")))
        return console.export_svg(title="", code_format=TEMPLATE, unique_id="terminal")


def run(bootstrap: str) -> list[tuple[str, str]]:
    """Each of COMMANDS, as it is typed."""
    environ = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS), "BARNABAS_BOOTSTRAP_SERVER": bootstrap, "PYTHONPATH": str(ROOT)}
    command = re.compile(r"\bbarnabas\b")
    shown = []
    for line in COMMANDS:
        typed = command.sub(lambda _: f"'{sys.executable}' -m barnabas", line, count=1)
        finished = subprocess.run(["/bin/sh", "-ec", typed], env=environ, capture_output=True, text=True, timeout=60, check=True)
        shown.append((line, finished.stdout + finished.stderr))
    return shown


def fill(bootstrap: str) -> None:
    """Orders, most of which a group has read."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(40):
        producer.produce("orders", f'{{"number": {number}, "book": "Barnabas"}}', key=("anna", "ben", "cleo")[number % 3])
    producer.flush(30)
    settings = {"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.subscribe(["orders"])
    for _ in range(33):
        assert consumer.poll(30) is not None
    consumer.commit(asynchronous=False)
    consumer.close()


def main() -> None:
    with barnabas.Broker(topics={"orders": 3, "payments": 1}) as broker:
        fill(broker.bootstrap_servers)
        PATH.write_text(draw(run(broker.bootstrap_servers)), encoding="utf-8")


if __name__ == "__main__":
    main()
