from __future__ import annotations

from typing import Any

import pytest

from broker.handlers.cluster import api_versions
from broker.metadata.cluster_state import ClusterState
from broker.metadata.metadata_cache import MetadataCache
from config.server import ServerConfig
from protocol.apis import APIS
from protocol.codec import decode, encode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.stored.metadata_records import FeatureLevelRecord
from tests.broker.metadata.room import context
from tests.support.services import services

FINALIZED = {"metadata.version": 25, "group.version": 1, "share.version": 1, "eligible.leader.replicas.version": 1}


def _metadata() -> MetadataCache:
    cache = MetadataCache(ClusterState(), cluster_id="cluster", node_id=1, config=ServerConfig())
    cache.apply_committed([FeatureLevelRecord(name=name, feature_level=level) for name, level in FINALIZED.items()])
    cache.end_offset = 8
    return cache


def _handler(**parts: Any) -> Any:
    return api_versions.build(services(metadata=_metadata(), **parts))


def _ask(version: int, **fields: Any) -> ApiVersionsResponse:
    answer: ApiVersionsResponse = _handler()(context(version), ApiVersionsRequest(**fields))
    return answer


def test_every_served_api_is_told_once_in_order() -> None:
    keys = [api.api_key for api in _ask(0).api_keys]

    assert keys == sorted(APIS.keys() - api_versions.TELEMETRY_KEYS)


def test_produce_and_join_group_are_told_from_version_0() -> None:
    """Older librdkafka otherwise sends uncompressed (KAFKA-18659), or has no groups over SASL."""
    floors = {api.api_key: api.min_version for api in _ask(0).api_keys}

    assert (floors[0], floors[11]) == (0, 0)


def test_an_unstable_version_is_told_only_if_it_is_enabled() -> None:
    told = {
        is_enabled: {each.api_key: each.max_version for each in _handler(config=config)(context(0), ApiVersionsRequest()).api_keys}
        for is_enabled in (False, True)
        for config in [ServerConfig(unstable_api_versions_enable=is_enabled)]
    }

    assert (told[False][22], told[True][22]) == (5, 6)
    assert told[True] == told[False] | {22: 6}


def test_features_that_are_here_are_told_with_their_finalized_levels() -> None:
    """share.version is finalized by somebody else, and not here: clients would use its protocol."""
    request = ApiVersionsRequest(client_software_name="ok", client_software_version="1.0")
    answer = _handler(kraft_version=lambda: 1)(context(4), request)

    supported = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    finalized = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
    levels_of_two = ("kraft.version", "group.version", "eligible.leader.replicas.version")
    assert supported == {"metadata.version": (7, 30), "transaction.version": (0, 2)} | dict.fromkeys(levels_of_two, (0, 1))
    assert finalized == {"metadata.version": (25, 25)} | dict.fromkeys(levels_of_two, (1, 1))
    assert answer.finalized_features_epoch == 7


def test_version_3_has_no_feature_whose_minimum_is_0_and_level_0_is_never_told() -> None:
    answer = _ask(3, client_software_name="ok", client_software_version="1.0")

    assert [each.name for each in answer.supported_features] == ["metadata.version"]
    assert "kraft.version" not in {each.name for each in answer.finalized_features}


def test_what_is_forwarded_is_told_at_the_versions_that_the_controller_speaks_too() -> None:
    """The controller may be an older node, or a newer one: its client would be cut off for a version that only one of both has."""
    controller = {19: (2, 5), 20: (5, 99), 37: (4, 9)}  # CreateTopics, DeleteTopics, CreatePartitions
    told = _handler(controller_versions=lambda: controller)(context(0), ApiVersionsRequest())

    versions = {each.api_key: (each.min_version, each.max_version) for each in told.api_keys}
    assert (versions[19], versions[20]) == ((2, 5), (5, 6))
    assert not {37, 44} & set(versions), "nobody serves any version of them"
    assert versions == {each.api_key: (each.min_version, each.max_version) for each in _ask(0).api_keys if each.api_key in versions} | {
        19: (2, 5),
        20: (5, 6),
    }, "the others are told as ever"


@pytest.mark.parametrize("name", ["", "bad name!", "-x", "x-", "ü"])
@pytest.mark.parametrize("field", ["client_software_name", "client_software_version"])
def test_software_that_is_no_name_is_refused(name: str, field: str) -> None:
    with pytest.raises(KafkaError) as refused:
        _ask(3, **({"client_software_name": "ok", "client_software_version": "1.0"} | {field: name}))

    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_software_is_not_looked_at_before_version_3() -> None:
    assert _ask(2).error_code == 0


def test_an_unsupported_version_is_answered_in_version_0() -> None:
    answer = api_versions.unsupported_version_response()

    assert encode(answer, 0) == bytes.fromhex("002300000001001200000004")


@pytest.mark.parametrize("version", range(5))
def test_every_version_can_be_written_and_read(version: int) -> None:
    answer = _ask(version, client_software_name="ok", client_software_version="1.0")

    assert decode(ApiVersionsResponse, version, encode(answer, version))[0].api_keys == answer.api_keys
