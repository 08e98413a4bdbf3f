"""Fixtures of the pipeline tests: a server, the `barnabas pipeline` command as its users run it, a Spark session."""

from __future__ import annotations

import pytest

from tests.pipeline.spark_support import needs_java, spark
from tests.support.fixtures import own_server, server, topic_name

__all__ = ["own_server", "server", "spark", "topic_name"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without Java, the tests marked `spark` are skipped by name, or fail where CI is set."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(needs_java())
