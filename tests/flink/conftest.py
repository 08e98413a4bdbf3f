"""Fixtures of the Flink tests."""

from __future__ import annotations

import pytest

from tests.support.fixtures import make_server, own_server
from tests.support.flink import compile_flink

__all__ = ["flink_classes", "make_server", "own_server"]


@pytest.fixture(scope="session")
def flink_classes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path with the compiled job."""
    return compile_flink(tmp_path_factory.mktemp("classes"))
