"""docs/protocol.md says what the table of APIs says."""

from __future__ import annotations

from pathlib import Path

from protocol.apis import APIS
from protocol.documentation import PATH, render

ROOT = Path(__file__).parents[2]


def test_protocol_page_is_not_stale() -> None:
    assert (ROOT / PATH).read_text(encoding="utf-8") == render(), "run `python -m protocol.documentation`"


def test_protocol_page_has_a_row_for_every_api() -> None:
    rows = [line for line in render().splitlines() if line.startswith("| ") and "messages/" in line]

    assert len(rows) == len(APIS)
    assert "| 0 | Produce | 3–13 (advertised 0–13) | 9 | [produce.py](../protocol/messages/produce.py) |" in rows


def test_files_that_the_page_links_to_exist() -> None:
    assert all((ROOT / f"protocol/messages/{api.stem}.py").is_file() for api in APIS.values())
