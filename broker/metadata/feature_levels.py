"""The features of Kafka and their levels, so that `format` and UpdateFeatures can tell an unsupported feature from an unknown one.

Source: MetadataVersion, Feature, KRaftVersion (KIP-584, KIP-1022).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.metadata.features import (
    ELR_FEATURE,
    GROUP_VERSION_FEATURE,
    KRAFT_VERSION_FEATURE,
    METADATA_VERSION_FEATURE,
    METADATA_VERSION_MAX,
    METADATA_VERSION_MIN,
    NOT_SUPPORTED,
    SUPPORTED,
    TRANSACTION_VERSION_FEATURE,
)


class MetadataVersion(NamedTuple):
    """A level of metadata.version. `changes_metadata`: its records cannot be written at lower levels, so a downgrade is not possible."""

    level: int
    release: str
    name: str
    changes_metadata: bool


class Feature(NamedTuple):
    """A feature besides metadata.version. `default_since[n]` is the metadata.version at which level n + 1 is a new cluster's default;
    `requires[level]` is the lowest metadata.version at which the level can be finalized."""

    name: str
    default_since: tuple[int, ...]
    requires: Mapping[int, int] = {}

    @property
    def highest(self) -> int:
        """The highest level that Kafka has."""
        return len(self.default_since)


_NAMES = (
    "3.3-IV3* 3.4-IV0* 3.5-IV0 3.5-IV1 3.5-IV2* 3.6-IV0 3.6-IV1* 3.6-IV2* 3.7-IV0* 3.7-IV1 3.7-IV2* 3.7-IV3 3.7-IV4 3.8-IV0 3.9-IV0 "
    "4.0-IV0 4.0-IV1* 4.0-IV2 4.0-IV3 4.1-IV0 4.1-IV1 4.2-IV0 4.2-IV1 4.3-IV0*"
)
"""In the order of their levels, which have no gaps; a star where the metadata changed."""

METADATA_VERSIONS: Mapping[int, MetadataVersion] = {
    level: MetadataVersion(level, name.partition("-")[0], name.rstrip("*"), name.endswith("*"))
    for level, name in enumerate(_NAMES.split(), METADATA_VERSION_MIN)
}

FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature(KRAFT_VERSION_FEATURE, (METADATA_VERSION_MAX + 1,)),
        Feature(TRANSACTION_VERSION_FEATURE, (24, 24)),
        Feature(GROUP_VERSION_FEATURE, (22,)),
        Feature(ELR_FEATURE, (26,), {1: 23}),
        Feature("share.version", (28,)),
        Feature("streams.version", (29,)),
    )
}


def default_level(feature: Feature, metadata_version: int) -> int:
    """Returns the default level of a new cluster of this metadata.version, or the highest one supported here if that is lower."""
    level = sum(metadata_version >= since for since in feature.default_since)
    return min(level, SUPPORTED.get(feature.name, NOT_SUPPORTED)[1])


def find_release(text: str) -> MetadataVersion | None:
    """The version that `text` names: `4.0-IV3`, or a release as `4.0` and `4.0.1`, which is its newest (fromVersionString)."""
    key = ".".join(text.split(".")[:2])
    found = None
    for version in METADATA_VERSIONS.values():
        if key in (version.name, version.release):
            found = version
    return found


def is_metadata_lost(current: int, lower: int) -> bool:
    """Whether going down from `current` to `lower` could lose metadata (MetadataVersion.checkIfMetadataChanged)."""
    return any(METADATA_VERSIONS[level].changes_metadata for level in range(lower + 1, current + 1))


def find_dependency(name: str, level: int, levels: Mapping[str, int]) -> str | None:
    """Returns why `name` cannot be at `level` together with the other `levels` (Feature.validateVersion); None if it can."""
    feature = FEATURES.get(name)
    needed = None if feature is None else feature.requires.get(level)
    if needed is None or levels.get(METADATA_VERSION_FEATURE, 0) >= needed:
        return None
    return f"{name} could not be set to {level} because it depends on {METADATA_VERSION_FEATURE} level {needed}"
