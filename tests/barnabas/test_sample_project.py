"""A user's project with a broker for each test leaves nothing, also when pytest is killed. The long one: sample_project.py."""

from __future__ import annotations

import pytest

from tests.barnabas.sample_project import Sample
from tests.barnabas.test_pytest_plugin import needs_xdist
from tests.support.installed import Project

TESTS = 10
WAYS = [pytest.param((), id="alone"), pytest.param(("-n", "2"), id="xdist", marks=needs_xdist)]


@pytest.mark.parametrize("arguments", WAYS)
def test_a_broker_for_each_test_leaves_nothing(project: Project, arguments: tuple[str, ...]) -> None:
    assert Sample(project, TESTS).run(*arguments).cpu_s > 0


@pytest.mark.parametrize("arguments", WAYS)
def test_a_killed_pytest_leaves_nothing(project: Project, arguments: tuple[str, ...]) -> None:
    assert Sample(project, TESTS).kill(*arguments) >= 0
