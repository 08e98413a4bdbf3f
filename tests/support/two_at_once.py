"""How `make test WORKERS=2` uses two cores: pytest-xdist's workers, each running whole files, those that take longest first.

Most of the suite's time is spent waiting for clusters, for Java and for timeouts, which one worker does while the other computes. What
needs Spark is one worker's: its JVM takes a gigabyte, and its connector is fetched into one cache. Without `-n` nothing here has an
effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

SPARK = "tests/pipeline"
USERS_OF_SPARK = (f"{SPARK}/", "tests/clients/test_spark_", "tests/barnabas/test_documentation.py", "tests/test_readme.py")
# In this order: a long file that begins last would leave the other worker without work. What is not here comes after.
LONGEST = (
    SPARK,
    "tests/mixed/test_takeover.py",
    "tests/mixed",
    "tests/faults",
    "tests/peers",
    "tests/clients",
    "tests/simulation",
    "tests/attack",
)


def lane_of(node_id: str) -> str:
    """What one worker runs in one piece: the test's file, or everything that needs Spark."""
    path = node_id.partition("::")[0]
    return SPARK if path.startswith(USERS_OF_SPARK) else path


def rank_of(node_id: str) -> int:
    lane = lane_of(node_id)
    return next((rank for rank, prefix in enumerate(LONGEST) if lane == prefix or lane.startswith(f"{prefix}/")), len(LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    from xdist.scheduler import LoadScopeScheduling

    class Lanes(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return lane_of(nodeid)

    config.option.loadscopereorder = False  # by the number of tests, of which a long file may have one
    return Lanes(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker: lanes are given out in the order in which their tests were collected."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank_of(item.nodeid))
