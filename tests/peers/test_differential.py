"""A few seeds of each differential fuzzer: random steps are answered by Barnabas as by Apache Kafka. `make compare` plays many."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peers.differential.broker_settings import BROKER_SETTINGS
from tests.peers.differential.comparison import Comparison, Pair, both_brokers
from tests.peers.differential.fuzzer import Fuzzer
from tests.peers.differential.fuzzers import FUZZERS

SEEDS = range(3)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One pair of brokers for all fuzzers."""
    with both_brokers(tmp_path_factory.mktemp("differential"), BROKER_SETTINGS) as brokers:
        yield brokers


@pytest.mark.parametrize("fuzzer", FUZZERS, ids=[fuzzer.name for fuzzer in FUZZERS])
def test_random_steps_are_answered_as_by_kafka(pair: Pair, fuzzer: Fuzzer) -> None:
    assert fuzzer.settings == BROKER_SETTINGS
    comparison = Comparison(fuzzer, pair)

    failures = [comparison.check(seed, is_minimised=False) for seed in SEEDS]

    assert not [str(failure) for failure in failures if failure is not None]
