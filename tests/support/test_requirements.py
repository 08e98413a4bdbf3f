"""Tests whose machine lacks something: skipped, failed where CI is set, the reason told either way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
TESTS = """
import pytest
from tests.support.requirements import needs, require

@needs("no moon")
def test_marked(): pass

@needs(None)
def test_that_can_run(): pass

def test_that_asks(): require("no moon")

@pytest.fixture
def moon(): require("no moon")

def test_whose_fixture_asks(moon): pass
"""


@pytest.mark.parametrize(
    ("ci", "outcome", "told"),
    [
        ("", "1 passed, 3 skipped", "no moon"),
        ("false", "1 passed, 3 skipped", "no moon"),
        ("true", "1 failed, 1 passed, 2 errors", "did not run, which is a failure where CI is set: no moon"),
    ],
)
def test_what_cannot_run_is_skipped_or_failed_with_its_reason(tmp_path: Path, ci: str, outcome: str, told: str) -> None:
    (tmp_path / "test_moon.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rs",
        "-p",
        "tests.support.requirements",
        "-p",
        "no:cacheprovider",
        "-o",
        "markers=needs",
        "--rootdir",
        tmp_path,
    ]

    finished = subprocess.run(
        [*command, tmp_path], cwd=CHECKOUT, env={**os.environ, "CI": ci}, capture_output=True, text=True, timeout=60, check=False
    )

    assert outcome in finished.stdout.splitlines()[-1]
    assert told in finished.stdout
