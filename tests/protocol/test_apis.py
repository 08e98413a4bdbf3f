"""The table of served APIs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from protocol.apis import APIS, Api
from protocol.schema import schema_of


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_table_agrees_with_the_declarations(api: Api) -> None:
    for cls in (api.request_class, api.response_class):
        first, last = schema_of(cls).versions

        assert first <= api.min_version <= api.max_version <= last
        assert schema_of(cls).is_flexible(api.max_version) == (api.max_version >= api.flexible_since)
        assert not schema_of(cls).is_flexible(api.flexible_since - 1)
    assert schema_of(api.request_class).key == api.key


def test_versions_are_those_of_kafka_4_0_and_between_brokers_those_of_4_3() -> None:
    """Kafka's brokers negotiate neither Fetch nor ListOffsets among each other: metadata.version says the version."""
    served = {api.key: (api.min_version, api.max_version) for api in APIS.values()}

    assert served == {
        0: (3, 13), 1: (4, 18), 2: (1, 11), 3: (0, 13), 8: (2, 10), 9: (1, 10), 10: (0, 6), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5),
        15: (0, 6), 16: (0, 5), 17: (0, 1), 18: (0, 4), 19: (2, 7), 20: (1, 6), 21: (0, 2), 22: (0, 5), 23: (2, 4),
        24: (0, 5), 25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5), 29: (1, 3), 30: (1, 3), 31: (1, 3),
        32: (1, 4), 33: (0, 2), 34: (1, 2),
        35: (1, 5), 36: (0, 2), 37: (0, 3), 38: (1, 3), 39: (1, 2), 40: (1, 2), 41: (1, 3),
        42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 1), 46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0),
        55: (0, 2), 57: (0, 2), 60: (0, 2), 61: (0, 0), 64: (0, 0), 65: (0, 0), 66: (0, 2),
            68: (0, 1), 69: (0, 1), 71: (0, 0), 72: (0, 0), 74: (0, 1), 75: (0, 0), 80: (0, 1), 81: (0, 0),
    }  # fmt: skip


def test_init_producer_id_alone_has_an_unstable_version() -> None:
    unstable = {api.name: api.unstable_max_version for api in APIS.values() if api.unstable_max_version != api.max_version}

    assert unstable == {"InitProducerId": 6}
    assert not APIS[22].serves(6)
    assert APIS[22].serves(6, is_unstable_enabled=True)


def test_only_produce_is_advertised_lower_than_served() -> None:
    """KAFKA-18659: older librdkafka sends uncompressed to a broker without Produce 0."""
    lower = {api.name: api.advertised_min_version for api in APIS.values() if api.advertised_min_version != api.min_version}

    assert lower == {"Produce": 0}
    assert not APIS[0].serves(0)


def test_header_versions_follow_flexible_versions() -> None:
    fetch = APIS[1]

    assert (fetch.request_header_version(11), fetch.response_header_version(11)) == (1, 0)
    assert (fetch.request_header_version(12), fetch.response_header_version(12)) == (2, 1)


def test_api_versions_responses_have_the_oldest_header_always() -> None:
    assert [APIS[18].response_header_version(version) for version in range(5)] == [0] * 5
    assert APIS[18].request_header_version(3) == 2


def test_message_modules_load_at_first_use() -> None:
    program = "import sys, protocol.apis; sys.exit(any(name.startswith('protocol.messages.') for name in sys.modules))"

    assert subprocess.run([sys.executable, "-c", program], timeout=30, check=False).returncode == 0
