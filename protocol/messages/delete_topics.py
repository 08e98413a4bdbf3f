"""DeleteTopics (key 20).

Version notes: 4 flexible; 5 error messages; 6 topics by name or id.
"""

from __future__ import annotations

from ..schema import Array, Int16, Int32, String, Uuid, api, message, since, struct
from ..uuids import ZERO_UUID


@struct
class DeleteTopicState:
    name: String | None = since(6, default=None)
    topic_id: Uuid = since(6, default=ZERO_UUID)


@api(key=20, versions=(1, 6), flexible=4)
class DeleteTopicsRequest:
    """Asks to delete topics, up to version 5 by name."""

    topics: Array[DeleteTopicState] = since(6, default=[])
    topic_names: Array[String] = since(0, until=5, default=[], ignorable=True)
    timeout_ms: Int32 = 0


@struct
class DeletableTopicResult:
    name: String | None = since(0, nullable_since=6, default="")
    topic_id: Uuid = since(6, default=ZERO_UUID, ignorable=True)
    error_code: Int16 = 0
    error_message: String | None = since(5, default=None, ignorable=True)


@message(versions=(1, 6), flexible=4)
class DeleteTopicsResponse:
    """Tells what came of each topic."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    responses: Array[DeletableTopicResult] = []
