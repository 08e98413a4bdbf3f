"""CreatePartitions (key 37): more partitions for topics.

Version notes: 2 flexible; 3 THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from ..schema import Array, Bool, Int16, Int32, String, api, message, struct


@struct
class CreatePartitionsAssignment:
    broker_ids: Array[Int32] = []


@struct
class CreatePartitionsTopic:
    name: String = ""
    count: Int32 = 0
    assignments: Array[CreatePartitionsAssignment] | None = []


@api(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsRequest:
    """Asks for a new total of partitions."""

    topics: Array[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: Bool = False


@struct
class CreatePartitionsTopicResult:
    name: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


@message(versions=(0, 3), flexible=2)
class CreatePartitionsResponse:
    """Tells what came of each topic."""

    throttle_time_ms: Int32 = 0
    results: Array[CreatePartitionsTopicResult] = []
