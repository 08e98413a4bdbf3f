"""franz-go's own test of transactions, unmodified but for the number of records. All of it: `python -m tests.suites.franz_go`."""

from __future__ import annotations

from pathlib import Path

from tests.suites.franz_go import TEST, compiled_tests, run

RECORDS = 20_000
GROUPS = {"range", "cooperative-sticky", "range/848", "sticky/848", "cooperative-sticky/static", "sticky/848/static"}


def test_franz_gos_own_test_passes(tmp_path: Path) -> None:
    results = run(compiled_tests(), 1, RECORDS, tmp_path)

    assert results == dict.fromkeys((TEST, *(f"{TEST}/{group}" for group in GROUPS)), "PASS")
