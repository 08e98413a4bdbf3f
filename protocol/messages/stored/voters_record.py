"""The value of a KRAFT_VOTERS control record: the voters of the metadata quorum (KIP-853)."""

from __future__ import annotations

from ...schema import Array, Int16, Int32, String, UInt16, Uuid, message, since, struct
from ...uuids import ZERO_UUID


@struct
class Endpoint:
    name: String = ""
    host: String = ""
    port: UInt16 = 0


@struct
class KRaftVersionFeature:
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@struct
class Voter:
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    endpoints: Array[Endpoint] = []
    k_raft_version_feature: KRaftVersionFeature = since(0, factory=KRaftVersionFeature)


@message(versions=(0, 0), flexible=0)
class VotersRecord:
    version: Int16 = 0
    voters: Array[Voter] = []
