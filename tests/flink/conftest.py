"""Fixtures of the Flink tests."""

from __future__ import annotations

import pytest

from tests.support.fixtures import make_server, own_server
from tests.support.flink import flink_path

__all__ = ["flink_classes", "make_server", "own_server"]


@pytest.fixture(scope="session")
def flink_classes() -> str:
    """The class path with the compiled job."""
    return flink_path()
