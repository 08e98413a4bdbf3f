"""AddRaftVoter (key 80): add a voter to the metadata quorum (KIP-853)."""

from __future__ import annotations

from ..schema import Array, Bool, Int16, Int32, String, UInt16, Uuid, api, message, since, struct
from ..uuids import ZERO_UUID


@struct
class Listener:
    name: String = ""
    host: String = ""
    port: UInt16 = 0


@api(key=80, versions=(0, 1), flexible=0)
class AddRaftVoterRequest:
    cluster_id: String | None = ""
    timeout_ms: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID
    listeners: Array[Listener] = []
    ack_when_committed: Bool = since(1, default=True)


@message(versions=(0, 1), flexible=0)
class AddRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = since(0, default="", ignorable=True)
