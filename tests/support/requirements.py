"""A pytest plugin: what a test needs of the machine, and what happens where it is not there.

On a developer's machine the test is skipped, and the end of the run says why. Where CI is set nobody reads that: there it fails.
"""

from __future__ import annotations

import os

import pytest


def needs(missing: str | None) -> pytest.MarkDecorator:
    """A marker of tests that cannot run for the reason `missing`; with None they can."""
    return pytest.mark.needs(missing)


def require(missing: str | None) -> None:
    """Go on, or end the running test for the reason `missing`: skipped, or failed where CI is set."""
    if missing is None:
        return
    if is_ci():
        pytest.fail(f"did not run, which is a failure where CI is set: {missing}", pytrace=False)
    pytest.skip(missing)


def is_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        require(*marker.args)
