"""DescribeClientQuotas (key 48): lists the quotas of the entities that a filter matches.

Version notes: 1 flexible.
"""

from __future__ import annotations

from ..schema import Array, Bool, Float64, Int8, Int16, Int32, String, api, message, struct


@struct
class ComponentData:
    entity_type: String = ""
    match_type: Int8 = 0
    match: String | None = ""


@api(key=48, versions=(0, 1), flexible=1)
class DescribeClientQuotasRequest:
    """Asks for the entities that match all components and, if strict, have no other parts."""

    components: Array[ComponentData] = []
    strict: Bool = False


@struct
class EntityData:
    entity_type: String = ""
    entity_name: String | None = ""


@struct
class ValueData:
    key: String = ""
    value: Float64 = 0.0


@struct
class EntryData:
    entity: Array[EntityData] = []
    values: Array[ValueData] = []


@message(versions=(0, 1), flexible=1)
class DescribeClientQuotasResponse:
    """Lists the entities; null after an error."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    entries: Array[EntryData] | None = []
