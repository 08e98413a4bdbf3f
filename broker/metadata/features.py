"""The features that this node reports in its registration and in ApiVersions: those in SUPPORTED. A cluster that has finalized others
refuses it.

feature_levels.py has all features of Kafka, for the code that finalizes them; a start does not need it.

Source: MetadataVersion, QuorumFeatures (KIP-584).
"""

from __future__ import annotations

from collections.abc import Mapping

METADATA_VERSION_FEATURE = "metadata.version"
METADATA_VERSION_MIN = 7
"""3.3-IV3, the oldest that Kafka 4 reads."""
METADATA_VERSION_LEVEL = 25
"""4.0-IV3: what a new cluster is finalized at. Every Kafka since 4.0 can join it."""
METADATA_VERSION_MAX = 30
"""4.3-IV0, the newest that Kafka 4.3 calls stable."""
METADATA_VERSION_SCRAM = 11
"""3.5-IV2, the first with SCRAM credentials."""
METADATA_VERSION_DELEGATION_TOKENS = 14
"""3.6-IV2, the first with delegation tokens."""

CORDONED_DIRECTORIES_LEVEL = 30
"""4.3-IV0, from where on brokers tell their cordoned log directories, and the cluster's metadata hold them (KIP-1066)."""

KRAFT_VERSION_FEATURE = "kraft.version"
KRAFT_VERSION_MAX = 1

GROUP_VERSION_FEATURE = "group.version"
"""At level 1 groups may use the consumer protocol (KIP-848)."""

TRANSACTION_VERSION_FEATURE = "transaction.version"
"""At level 1 records of `__transaction_state` may have tagged fields; at level 2 clients may follow KIP-890's second part."""

ELR_FEATURE = "eligible.leader.replicas.version"

SILENCE_FEATURE = "barnabas.silence"
"""In registrations alone, and never finalized: the node answers and asks as the others' notice of silence needs it. Kafka's controllers
take a feature that they do not know if its lowest level is 0 (ClusterControlManager.processRegistrationFeature)."""
SILENCE_RANGE = (0, 1)

NOT_SUPPORTED = (0, 0)

SUPPORTED: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION_FEATURE: (METADATA_VERSION_MIN, METADATA_VERSION_MAX),
    KRAFT_VERSION_FEATURE: (0, KRAFT_VERSION_MAX),
    TRANSACTION_VERSION_FEATURE: (0, 2),
    GROUP_VERSION_FEATURE: (0, 1),
    ELR_FEATURE: (0, 1),
}
"""Lowest and highest level of what is here, both inclusive. What is not named has level 0 alone."""


def registered_ranges(*, notices_silence: bool) -> dict[str, tuple[int, int]]:
    """Returns the supported features with which a broker or a controller registers."""
    return {**SUPPORTED, SILENCE_FEATURE: SILENCE_RANGE} if notices_silence else dict(SUPPORTED)


def knows_cordoned_directories(features: Mapping[str, int]) -> bool:
    """Whether the finalized `features` let brokers cordon log directories."""
    return features.get(METADATA_VERSION_FEATURE, 0) >= CORDONED_DIRECTORIES_LEVEL
