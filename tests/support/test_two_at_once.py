"""Which tests share a worker, and in which order they begin."""

from __future__ import annotations

import re

from tests.support.process import checkout
from tests.support.two_at_once import LONGEST, SPARK, lane_of, rank_of


def test_all_that_needs_spark_is_one_lane() -> None:
    files = {str(path.relative_to(checkout())): path.read_text() for path in (checkout() / "tests").rglob("test_*.py")}
    needing = {name for name, text in files.items() if re.search(r"^(import|from) pyspark|^@?pytest.*mark\.spark", text, re.MULTILINE)}

    assert {lane_of(f"{name}::test_a[x/y]") for name in needing} == {SPARK}
    assert "tests/clients/test_spark_sink.py" in needing


def test_every_other_file_is_a_lane() -> None:
    assert lane_of("tests/clients/test_groups.py::test_c") == "tests/clients/test_groups.py"


def test_what_takes_longest_begins_first() -> None:
    names = ("tests/wire/test_a.py::t", "tests/clients/test_b.py::t", "tests/mixed/test_live_move.py::t", "tests/mixed/test_takeover.py::t")

    assert sorted(names, key=rank_of) == list(reversed(names))
    assert rank_of("tests/clients/test_spark_sink.py::t") == rank_of("tests/pipeline/test_archive.py::t") == 0


def test_what_is_said_to_take_long_is_there() -> None:
    assert not [name for name in LONGEST if not (checkout() / name).exists()]
