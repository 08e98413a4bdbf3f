"""The charts of the first page are what the newest results say. Where this fails, run `python -m bench.charts`."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from bench.charts import PANELS, PATH, describe, draw, newest, sittings
from tests.support.sources import ROOT


def sitting(date: str, row: str, **runs: list[float]) -> dict[str, Any]:
    """One row, of the products that are named, with one figure."""
    return {"date": date, "rows": [{"row": row, "product": product, "runs": {"figure": values}} for product, values in runs.items()]}


def test_the_picture_is_drawn_from_the_newest_results() -> None:
    assert PATH.read_text(encoding="utf-8") == draw(sittings())


def test_a_row_comes_from_the_newest_sitting_that_has_both_products() -> None:
    known = [
        sitting("2026-01-01", "start", barnabas=[3], kafka=[4]),
        sitting("2026-01-02", "start", barnabas=[1], kafka=[2]),
        sitting("2026-01-03", "start", barnabas=[9]),
        sitting("2026-01-04", "memory", barnabas=[9], kafka=[9]),
    ]

    assert newest("start", known).values == {"barnabas": {"figure": [1]}, "kafka": {"figure": [2]}}
    with pytest.raises(LookupError, match="no sitting has failover"):
        newest("failover", known)


def test_trials_are_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.charts.RESULTS_DIR", tmp_path)
    for name, scale, date in (("a", 1.0, "2026-01-02"), ("b", 0.25, "2026-01-01"), ("c", 0.01, "2026-01-03")):
        (tmp_path / f"{name}.json").write_text(json.dumps({**sitting(date, "start", barnabas=[1]), "scale": scale}))

    assert [known["date"] for known in sittings()] == ["2026-01-01", "2026-01-02"]


def test_bars_are_as_long_as_their_medians() -> None:
    picture = ElementTree.fromstring(draw(sittings()))
    widths = {
        kind: [float(bar.get("width", "")) for bar in picture.iter() if bar.tag.endswith("rect") and bar.get("class") == kind]
        for kind in ("barnabas", "kafka")
    }

    assert len(widths["barnabas"]) == len(PANELS)
    for panel, ours, theirs in zip(PANELS, widths["barnabas"], widths["kafka"], strict=True):
        (rows,) = [
            {
                each["product"]: each["median"][panel.figure]
                for each in newest(panel.row, sittings()).sitting["rows"]
                if each["row"] == panel.row
            }
        ]
        assert ours / theirs == pytest.approx(rows["barnabas"] / rows["kafka"], rel=0.1)


def test_the_first_page_says_in_words_what_the_picture_shows() -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")

    assert re.findall(r"!\[([^\]]*)\]\(docs/images/beside-kafka\.svg\)", page) == [describe(sittings())]
