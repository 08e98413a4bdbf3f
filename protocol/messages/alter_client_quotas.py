"""AlterClientQuotas (key 49): sets and removes quotas of users, client ids and IP addresses.

Version notes: 1 flexible.
"""

from __future__ import annotations

from ..schema import Array, Bool, Float64, Int16, Int32, String, api, message, struct


@struct
class EntityData:
    entity_type: String = ""
    entity_name: String | None = ""


@struct
class OpData:
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


@struct
class EntryData:
    entity: Array[EntityData] = []
    ops: Array[OpData] = []


@api(key=49, versions=(0, 1), flexible=1)
class AlterClientQuotasRequest:
    """Asks to change quotas."""

    entries: Array[EntryData] = []
    validate_only: Bool = False


@struct
class AlterClientQuotasResponseEntryData:
    error_code: Int16 = 0
    error_message: String | None = ""
    entity: Array[EntityData] = []


@message(versions=(0, 1), flexible=1)
class AlterClientQuotasResponse:
    """Tells what came of each entity."""

    throttle_time_ms: Int32 = 0
    entries: Array[AlterClientQuotasResponseEntryData] = []
