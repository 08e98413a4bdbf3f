"""DescribeLogDirs (key 35): what is in a broker's log directories (KIP-113, KIP-827)."""

from __future__ import annotations

from ..schema import Array, Bool, Int16, Int32, Int64, String, api, message, since, struct


@struct
class DescribableLogDirTopic:
    topic: String = ""
    partitions: Array[Int32] = []


@api(key=35, versions=(1, 5), flexible=2)
class DescribeLogDirsRequest:
    topics: Array[DescribableLogDirTopic] | None = []


@struct
class DescribeLogDirsPartition:
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


@struct
class DescribeLogDirsTopic:
    name: String = ""
    partitions: Array[DescribeLogDirsPartition] = []


@struct
class DescribeLogDirsResult:
    error_code: Int16 = 0
    log_dir: String = ""
    topics: Array[DescribeLogDirsTopic] = []
    total_bytes: Int64 = since(4, default=-1, ignorable=True)
    usable_bytes: Int64 = since(4, default=-1, ignorable=True)
    is_cordoned: Bool = since(5, default=False, ignorable=True)


@message(versions=(1, 5), flexible=2)
class DescribeLogDirsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(3, default=0, ignorable=True)
    results: Array[DescribeLogDirsResult] = []
