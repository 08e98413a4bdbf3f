"""UpdateRaftVoter (key 82): a voter tells the leader its endpoints and kraft.version range (KIP-853)."""

from __future__ import annotations

from ..schema import Array, Int16, Int32, String, UInt16, Uuid, api, message, since, struct
from ..uuids import ZERO_UUID


@struct
class Listener:
    name: String = ""
    host: String = ""
    port: UInt16 = 0


@struct
class KRaftVersionFeature:
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@api(key=82, versions=(0, 0), flexible=0)
class UpdateRaftVoterRequest:
    cluster_id: String | None = ""
    current_leader_epoch: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    listeners: Array[Listener] = []
    k_raft_version_feature: KRaftVersionFeature = since(0, factory=KRaftVersionFeature)


@struct
class CurrentLeader:
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    host: String = ""
    port: Int32 = 0


@message(versions=(0, 0), flexible=0)
class UpdateRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    current_leader: CurrentLeader = since(0, tag=0, factory=CurrentLeader)
