"""The controller's decisions about features: which levels are finalized, and whether every node supports them. Computes records.

kraft.version is the quorum's: its level is in the quorum's own records, and changes by an upgrade of these (KIP-853).

Source: FeatureControlManager, ConfigurationControlManager.updateFeatures (KIP-584, KIP-1022).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, Protocol

from broker.controller.cluster_control import elr_safety_records
from broker.controller.controller_result import ControllerResult
from broker.metadata.cluster_state import ClusterState
from broker.metadata.feature_levels import METADATA_VERSIONS, find_dependency, is_metadata_lost
from broker.metadata.features import (
    ELR_FEATURE,
    KRAFT_VERSION_FEATURE,
    METADATA_VERSION_FEATURE,
    NOT_SUPPORTED,
    SUPPORTED,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.stored.metadata_records import FeatureLevelRecord, NoOpRecord
from protocol.messages.update_features import FeatureUpdateKey, UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse

LAST_VERSION_WITH_RESULTS = 1
"""From UpdateFeatures v2 on the answer is for all features together."""
FAILED_TOGETHER = "The update failed for all features since the following feature had an error: "


class UpgradeType(IntEnum):
    """FeatureUpdate.UpgradeType."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class KRaftVersions(Protocol):
    """The part of the quorum that is about kraft.version."""

    @property
    def kraft_version(self) -> int: ...

    @property
    def voter_ids(self) -> Sequence[int]: ...

    def upgrade_kraft_version(self, epoch: int, level: int, *, is_validated_only: bool) -> None:
        """Append the upgrade; it is committed before any later proposal. Raises KafkaError if the upgrade is refused."""
        ...


class FeatureControl:
    """Reads `state`, never changes it. `min_insync_replicas` is this node's setting, which becomes the cluster's when eligible leader
    replicas are enabled."""

    def __init__(self, state: ClusterState, node_id: int, min_insync_replicas: int) -> None:
        self._state = state
        self._node_id = node_id
        self._min_insync_replicas = min_insync_replicas

    def update(
        self, request: UpdateFeaturesRequest, version: int, quorum: KRaftVersions, epoch: int
    ) -> ControllerResult[UpdateFeaturesResponse]:
        """Make all updates or none. `version` is the request's."""
        updates = {update.feature: update for update in request.feature_updates}
        levels = {**self._state.features, **{name: update.max_version_level for name, update in updates.items()}}
        levels.setdefault(METADATA_VERSION_FEATURE, self._state.metadata_version)
        records: list[Any] = []
        try:
            for update in updates.values():
                records += self._update(update, levels, quorum)
            # Last, because an upgrade takes effect when it is appended.
            kraft = updates.get(KRAFT_VERSION_FEATURE)
            if kraft is not None and kraft.max_version_level > quorum.kraft_version:
                quorum.upgrade_kraft_version(epoch, kraft.max_version_level, is_validated_only=request.validate_only)
                records.append(NoOpRecord())  # the answer waits for its commit
        except KafkaError as error:
            return ControllerResult([], UpdateFeaturesResponse(error_code=error.code, error_message=f"{FAILED_TOGETHER}{error.message}"))
        if levels.get(ELR_FEATURE) and ELR_FEATURE in updates:
            records = [*elr_safety_records(self._state, self._min_insync_replicas), *records]
        response = UpdateFeaturesResponse(error_message=None)
        if version <= LAST_VERSION_WITH_RESULTS:
            response.results = [UpdatableFeatureResult(feature=each.feature, error_message="NONE") for each in request.feature_updates]
        return ControllerResult([] if request.validate_only else records, response)

    # -- one feature -----------------------------------------------------------------------------------------------

    def _update(self, update: FeatureUpdateKey, levels: Mapping[str, int], quorum: KRaftVersions) -> list[Any]:
        """Raises KafkaError INVALID_UPDATE_VERSION."""
        name, level = update.feature, update.max_version_level
        if update.upgrade_type not in UpgradeType._value2member_map_:
            raise _invalid(name, level, "The controller does not support the given upgrade type.")
        if level < 0:
            raise _invalid(name, level, "A feature version cannot be less than 0.")
        reason = next(self._reasons_against(name, level, quorum), None)
        if reason is not None:
            raise _invalid(name, level, reason)
        current = quorum.kraft_version if name == KRAFT_VERSION_FEATURE else self._current(name)
        is_upgrade = update.upgrade_type == UpgradeType.UPGRADE
        if level < current and is_upgrade:
            why = "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
            raise _invalid(name, level, why)
        if level > current and not is_upgrade:
            raise _invalid(name, level, "Can't downgrade to a newer version.")
        if name == KRAFT_VERSION_FEATURE:
            if level < current:
                raise _invalid(name, level, "Can't downgrade the version of this feature.")
            return []
        if name == METADATA_VERSION_FEATURE:
            _check_metadata_version(current, level, is_unsafe=update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE)
        else:
            dependency = find_dependency(name, level, levels)
            if dependency is not None:
                raise _invalid(name, level, dependency)
        return [FeatureLevelRecord(name=name, feature_level=level)]

    def _current(self, name: str) -> int:
        return self._state.metadata_version if name == METADATA_VERSION_FEATURE else self._state.features.get(name, 0)

    def _reasons_against(self, name: str, level: int, quorum: KRaftVersions) -> Iterator[str]:
        """Yields a text for each node that does not support the level."""
        yield from _reason(level, f"Local controller {self._node_id}", SUPPORTED.get(name, NOT_SUPPORTED))
        for broker in self._state.brokers.values():
            registered = [] if broker.registration is None else broker.registration.features
            yield from _reason(level, f"Broker {broker.node_id}", _range_of(registered, name))
        controllers = self._state.kept.controllers
        for node_id, controller in controllers.items():
            if node_id != self._node_id:
                yield from _reason(level, f"Controller {node_id}", _range_of(controller.features, name))
        for node_id in quorum.voter_ids:
            if node_id != self._node_id and node_id not in controllers:
                yield f"controller {node_id} has not registered, and may not support this feature"


def _range_of(features: Sequence[Any], name: str) -> tuple[int, int]:
    found = (each for each in features if each.name == name)
    return next(((each.min_supported_version, each.max_supported_version) for each in found), NOT_SUPPORTED)


def _reason(level: int, who: str, supported: tuple[int, int]) -> Iterator[str]:
    lowest, highest = supported
    if not lowest <= level <= highest:
        is_unknown = highest == 0
        yield f"{who} does not support this feature." if is_unknown else f"{who} only supports versions {_range_text(lowest, highest)}"


def _range_text(lowest: int, highest: int) -> str:
    """Formats a range as VersionRange.toString does."""
    return str(lowest) if lowest == highest else f"{lowest}-{highest}"


def _check_metadata_version(current: int, level: int, *, is_unsafe: bool) -> None:
    if level not in METADATA_VERSIONS:
        lowest, highest = SUPPORTED[METADATA_VERSION_FEATURE]
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION, f"Invalid metadata.version {level}. Valid versions are from {lowest} to {highest}."
        )
    if level < current and is_metadata_lost(current, level):
        why = (
            "Unsafe metadata downgrade is not supported in this version."
            if is_unsafe
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"Unsupported metadata.version downgrade from {current} to {level}. {why}")


def _invalid(name: str, level: int, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {why}")
