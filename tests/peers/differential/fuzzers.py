"""All differential fuzzers. Those with the same settings stand side by side: they share a pair of brokers."""

from __future__ import annotations

from collections.abc import Sequence

from tests.peers.differential.admin import AdminFuzzer
from tests.peers.differential.consumer_groups import ConsumerGroupFuzzer
from tests.peers.differential.data import DataFuzzer
from tests.peers.differential.fuzzer import Fuzzer

FUZZERS: Sequence[Fuzzer] = (ConsumerGroupFuzzer(), AdminFuzzer(), DataFuzzer())
