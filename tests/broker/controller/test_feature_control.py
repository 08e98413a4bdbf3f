"""Levels of features change together or not at all, and only where every node that is registered supports them."""

from __future__ import annotations

from typing import Any

import pytest

from broker.controller.controller import Controller
from config.server import ServerConfig
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.stored.metadata_records import (
    BrokerFeature,
    ConfigRecord,
    ControllerFeature,
    FeatureLevelRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.broker.metadata.room import make_controller

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
RANGES = {"metadata.version": (7, 30), "kraft.version": (0, 1), "eligible.leader.replicas.version": (0, 1)}
EPOCH = 4


class Quorum:
    """kraft.version as the quorum keeps it."""

    def __init__(self, kraft_version: int = 0, voter_ids: tuple[int, ...] = (1,), refusal: str = "") -> None:
        self.kraft_version = kraft_version
        self.voter_ids = voter_ids
        self.refusal = refusal
        self.asked: list[tuple[int, int, bool]] = []

    def upgrade_kraft_version(self, epoch: int, level: int, *, is_validated_only: bool) -> None:
        self.asked.append((epoch, level, is_validated_only))
        if self.refusal:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, self.refusal)


def cluster(level: int = 25, **ranges: tuple[int, int]) -> Controller:
    """Node 1 leads; broker 2 and controller 3 support RANGES, but for `ranges`, given with underscores for dots."""
    controller = Controller(ServerConfig(min_insync_replicas=2), node_id=1, random_source=make_controller()._random)
    told = RANGES | {name.replace("_", "."): each for name, each in ranges.items()}
    features = [BrokerFeature(name=name, min_supported_version=low, max_supported_version=high) for name, (low, high) in told.items()]
    of_controller = [
        ControllerFeature(name=name, min_supported_version=low, max_supported_version=high) for name, (low, high) in told.items()
    ]
    controller.replay(
        [
            FeatureLevelRecord(name="metadata.version", feature_level=level),
            RegisterBrokerRecord(broker_id=2, features=features, log_dirs=[bytes(15) + b"\x77"]),
            RegisterControllerRecord(controller_id=3, features=of_controller),
        ]
    )
    return controller


def update(
    controller: Controller, *changes: tuple[str, int, int], version: int = 2, quorum: Quorum | None = None, validate_only: bool = False
) -> tuple[UpdateFeaturesResponse, list[Any]]:
    updates = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in changes]
    request = UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)
    result = controller.features.update(request, version, quorum or Quorum(voter_ids=(1, 3)), EPOCH)
    return result.response, result.records


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [(25, 30, UPGRADE), (25, 25, UPGRADE), (29, 25, SAFE_DOWNGRADE), (27, 26, UNSAFE_DOWNGRADE)],
)
def test_the_metadata_version_changes_where_nothing_is_lost(before: int, after: int, kind: int) -> None:
    response, records = update(cluster(before), ("metadata.version", after, kind))

    assert (response.error_code, response.results) == (0, [])
    assert records == [FeatureLevelRecord(name="metadata.version", feature_level=after)]


@pytest.mark.parametrize(
    ("level", "change", "why"),
    [
        (25, ("metadata.version", 31, UPGRADE), "Local controller 1 only supports versions 7-30"),
        (25, ("metadata.version", -1, UPGRADE), "A feature version cannot be less than 0."),
        (27, ("metadata.version", 25, UPGRADE), "Can't downgrade the version of this feature without setting"),
        (25, ("metadata.version", 27, SAFE_DOWNGRADE), "Can't downgrade to a newer version."),
        (30, ("metadata.version", 29, SAFE_DOWNGRADE), "Refusing to perform the requested downgrade"),
        (25, ("metadata.version", 22, UNSAFE_DOWNGRADE), "Unsafe metadata downgrade is not supported"),
        (25, ("metadata.version", 27, 9), "The controller does not support the given upgrade type."),
        (25, ("share.version", 1, UPGRADE), "Local controller 1 does not support this feature."),
        (25, ("no.such.version", 1, UPGRADE), "Local controller 1 does not support this feature."),
        (22, ("eligible.leader.replicas.version", 1, UPGRADE), "because it depends on metadata.version level 23"),
    ],
)
def test_what_cannot_be_is_refused_as_kafka_does(level: int, change: tuple[str, int, int], why: str) -> None:
    response, records = update(cluster(level), change)

    assert (response.error_code, records) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert (response.error_message or "").startswith("The update failed for all features since the following feature had an error: ")
    assert why in (response.error_message or "")


def test_a_broker_that_does_not_support_the_level_keeps_it_away() -> None:
    response, _ = update(cluster(metadata_version=(7, 29)), ("metadata.version", 30, UPGRADE))

    assert "Broker 2 only supports versions 7-29" in (response.error_message or "")


def test_a_voter_that_has_not_registered_keeps_it_away() -> None:
    response, _ = update(cluster(), ("metadata.version", 30, UPGRADE), quorum=Quorum(voter_ids=(1, 3, 4)))

    assert "controller 4 has not registered, and may not support this feature" in (response.error_message or "")


def test_one_refusal_is_for_all() -> None:
    response, records = update(cluster(), ("metadata.version", 30, UPGRADE), ("share.version", 1, UPGRADE))

    assert (response.error_code, records) == (ErrorCode.INVALID_UPDATE_VERSION, [])


def test_what_is_only_validated_writes_nothing() -> None:
    quorum = Quorum()

    response, records = update(
        cluster(), ("metadata.version", 30, UPGRADE), ("kraft.version", 1, UPGRADE), quorum=quorum, validate_only=True
    )

    assert (response.error_code, records, quorum.asked) == (0, [], [(EPOCH, 1, True)])


def test_the_quorum_upgrades_its_own_version_and_the_answer_waits_for_a_record() -> None:
    quorum = Quorum()

    response, records = update(cluster(), ("kraft.version", 1, UPGRADE), quorum=quorum)

    assert (response.error_code, records, quorum.asked) == (0, [NoOpRecord()], [(EPOCH, 1, False)])


def test_the_quorum_s_refusal_is_the_answer_and_its_version_never_goes_down() -> None:
    refused, _ = update(cluster(), ("kraft.version", 1, UPGRADE), quorum=Quorum(refusal="not all of the voters support it"))
    down, _ = update(cluster(), ("kraft.version", 0, SAFE_DOWNGRADE), quorum=Quorum(kraft_version=1))

    assert "not all of the voters support it" in (refused.error_message or "")
    assert "Can't downgrade the version of this feature." in (down.error_message or "")


def test_a_refused_update_leaves_the_quorum_as_it_was() -> None:
    quorum = Quorum()

    update(cluster(), ("kraft.version", 1, UPGRADE), ("share.version", 1, UPGRADE), quorum=quorum)

    assert quorum.asked == []


def test_with_eligible_leaders_min_insync_replicas_becomes_one_setting_of_the_cluster() -> None:
    controller = cluster()
    controller.replay([ConfigRecord(resource_type=4, resource_name="2", name="min.insync.replicas", value="3")])

    _, records = update(controller, ("eligible.leader.replicas.version", 1, UPGRADE))

    assert records == [
        ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"),
        ConfigRecord(resource_type=4, resource_name="2", name="min.insync.replicas", value=None),
        FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
    ]


def test_old_versions_have_a_result_for_each_feature() -> None:
    response, _ = update(cluster(), ("metadata.version", 26, UPGRADE), version=1)

    assert [(each.feature, each.error_code) for each in response.results] == [("metadata.version", 0)]
