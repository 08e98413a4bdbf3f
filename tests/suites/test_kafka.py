"""Some of Kafka's own tests of transactions and of rights, unmodified. All that there are run by `python -m tests.suites.kafka`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suites.kafka import run, suites_path

QUICK = {
    ("TransactionsWithMaxInFlightOneTest", ""): 1,
    ("TransactionsTest", "testSendOffsetsWithGroupMetadata"): 2,
    ("AuthorizerIntegrationTest", "testMetadataWithNoTopicAccess"): 2,
}
"""A class, and a method of it if not all of them run, with how many tests it has."""


@pytest.fixture(scope="module")
def class_path() -> str:
    return suites_path()


@pytest.mark.parametrize(("name", "method"), QUICK)
def test_kafkas_own_tests_pass(name: str, method: str, class_path: str, tmp_path: Path) -> None:
    outcome = run(name, method, class_path, tmp_path)

    assert outcome.failed == {}
    assert len(outcome.passed) == QUICK[name, method]
