"""RemoveRaftVoter (key 81): remove a voter from the metadata quorum (KIP-853)."""

from __future__ import annotations

from ..schema import Int16, Int32, String, Uuid, api, message, since
from ..uuids import ZERO_UUID


@api(key=81, versions=(0, 0), flexible=0)
class RemoveRaftVoterRequest:
    cluster_id: String | None = ""
    voter_id: Int32 = 0
    voter_directory_id: Uuid = ZERO_UUID


@message(versions=(0, 0), flexible=0)
class RemoveRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = since(0, default="", ignorable=True)
