"""Tests of what users import: in this process from the checkout, and in projects of their own from the wheel."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.installed import commands_with, project  # noqa: F401
from tests.support.process import cache_dir


@pytest.fixture(autouse=True, scope="session")
def _compiled_files() -> Iterator[None]:
    """An installed broker has its .pyc files. Where the environment keeps this checkout from getting its own, they are cached elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("PYTHONDONTWRITEBYTECODE"):
            patch.delenv("PYTHONDONTWRITEBYTECODE")
            patch.setenv("PYTHONPYCACHEPREFIX", str(cache_dir() / "pycache"))
        yield


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the test's brokers keep their data; nothing is left there, and no process, when the test ends."""
    directory = tmp_path / "temporary files"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    yield directory
    assert list(directory.iterdir()) == []
    assert commands_with(str(directory)) == []
