"""Goal: the declarations are Kafka's, field by field. Kafka's own message definitions come inside the kafka-python wheel; those of the
requests between brokers and controllers are in Apache Kafka's jars.

kafka-python keeps some fields of versions that Kafka has removed; what no valid version carries is not compared.
"""

from __future__ import annotations

import json
import re
import zipfile
from importlib.resources import files
from typing import Any

import pytest

from protocol.apis import APIS
from protocol.schema import Field, FieldType, Kind, Message, schema_of
from protocol.uuids import ZERO_UUID
from tests.support.kafka import KAFKA_VERSION, kafka_jars
from tests.wire.messages import api_messages, header_messages, name_of, stored_messages

SCHEMAS = files("kafka.protocol") / "schemas" / "resources"
NEWEST_VERSION = 32767
TYPE_NAMES = {
    "b": "int8", "h": "int16", "H": "uint16", "i": "int32", "I": "uint32", "q": "int64", "d": "float64", "?": "bool", "16s": "uuid",
}  # fmt: skip
COMPARED = [
    cls for cls in (*api_messages(), *header_messages(), *stored_messages()) if (SCHEMAS / f"{cls.__name__}.json").is_file()
]  # fmt: skip


OUR_FIELDS = frozenset(("BrokerHeartbeatRequest.silent_brokers",))
"""Tagged, so that Kafka skips them."""

OUR_NAMES = {  # of structs whose names in Kafka would not say whose they are; ours, and Kafka's
    "HeartbeatTopicPartitions": "TopicPartitions",
    "HeartbeatAssignment": "Assignment",
    "DescribedConsumerGroup": "DescribedGroup",
    "DescribedConsumerMember": "Member",
    "DescribedAssignment": "Assignment",
    "DescribedTopicPartitions": "TopicPartitions",
}

BETWEEN_NODES = [cls for cls in api_messages() if cls not in COMPARED]


def test_every_message_of_clients_is_compared_without_the_jars() -> None:
    lacking = {  # in kafka-python
        *("UnregisterBroker", "AddRaftVoter", "RemoveRaftVoter", "GetTelemetrySubscriptions", "PushTelemetry"),
        *("ConsumerGroupHeartbeat", "ConsumerGroupDescribe"),
        *("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken"),
    }
    of_clients = {cls for api in APIS.values() if api.name not in lacking for cls in (api.request_class, api.response_class)}

    assert of_clients | set(header_messages()) <= set(COMPARED)


@pytest.mark.parametrize("cls", BETWEEN_NODES, ids=name_of)
def test_declaration_between_nodes_is_kafkas(cls: type[Message]) -> None:
    with zipfile.ZipFile(kafka_jars() / f"kafka-clients-{KAFKA_VERSION}.jar") as jar:
        text = jar.read(f"common/message/{cls.__name__}.json").decode()

    compare_message(cls, parse(text))


@pytest.mark.parametrize("cls", COMPARED, ids=name_of)
def test_declaration_is_kafkas(cls: type[Message]) -> None:
    compare_message(cls, load(cls.__name__))


def compare_message(cls: type[Message], schema: dict[str, Any]) -> None:
    versions = version_range(schema["validVersions"])

    assert schema_of(cls).versions == versions
    assert schema_of(cls).flexible_since == flexible_since(schema["flexibleVersions"])
    if schema["type"] == "request":
        assert schema_of(cls).key == schema["apiKey"]
    compare(cls, schema["fields"], {shared["name"]: shared["fields"] for shared in schema.get("commonStructs", ())}, versions, cls.__name__)


def compare(cls: type[Message], fields: list[dict[str, Any]], shared: dict[str, Any], versions: tuple[int, int], message_name: str) -> None:
    """`message_name` may stand before a struct's own name: requests and responses of one module have structs of one name."""
    fields = [field for field in fields if intersection(version_range(field["versions"]), versions)]
    all_declared = [field for field in schema_of(cls).fields if f"{cls.__name__}.{field.name}" not in OUR_FIELDS]
    assert [field.name for field in all_declared] == [snake_case(field["name"]) for field in fields]
    for declared, field in zip(all_declared, fields, strict=True):
        where = f"{cls.__name__}.{declared.name}"
        present = intersection(version_range(field["versions"]), versions)
        assert present is not None
        assert facts(declared, versions, message_name) == kafkas_facts(field, present, message_name), where
        inner = innermost(declared.type)
        if inner.cls is not None:
            kafkas_name = field["type"].removeprefix("[]")
            assert kafkas_struct(inner.cls).removeprefix(message_name) == kafkas_name.removeprefix(message_name), where
            compare(inner.cls, field.get("fields") or shared[kafkas_name], shared, present, message_name)


def facts(field: Field, versions: tuple[int, int], message_name: str) -> dict[str, Any]:
    first, last = max(field.first_version, versions[0]), min(field.last_version, versions[1])
    default = kafkas_struct(field.default).removeprefix(message_name) if isinstance(field.default, type) else field.default
    return {
        "versions": (first, last),
        "type": type_name(field.type).replace(message_name, ""),
        "nullable": [version for version in range(first, last + 1) if field.is_nullable_in(version)],
        "tag": field.tag,
        "default": default,
        "ignorable": field.ignorable,
        "compact": field.is_compactable,
    }


def kafkas_struct(cls: type) -> str:
    return OUR_NAMES.get(cls.__name__, cls.__name__)


def kafkas_facts(field: dict[str, Any], versions: tuple[int, int], message_name: str) -> dict[str, Any]:
    nullable = version_range(field.get("nullableVersions", "none"))
    tagged = version_range(field.get("taggedVersions", "none"))
    assert intersection(tagged, versions) in (None, versions), "a field is tagged in all its versions or in none"
    return {
        "versions": versions,
        "type": field["type"].replace(message_name, ""),
        "nullable": [version for version in range(versions[0], versions[1] + 1) if nullable[0] <= version <= nullable[1]],
        "tag": field.get("tag"),
        "default": kafkas_default(field["type"].replace(message_name, ""), field.get("default")),
        "ignorable": field.get("ignorable") in (True, "true"),
        "compact": field.get("flexibleVersions") != "none",
    }


def kafkas_default(kafka_type: str, default: Any) -> Any:
    if default == "null" or kafka_type == "records":
        return None
    if kafka_type.startswith("[]"):
        return []
    if kafka_type == "bool":
        return str(default).lower() == "true"
    if kafka_type.startswith(("int", "uint")):
        return int(str(default or 0), 0)
    return {"string": default or "", "bytes": b"", "uuid": ZERO_UUID, "float64": float(default or 0)}.get(kafka_type, kafka_type)


def type_name(field_type: FieldType) -> str:
    if field_type.kind is Kind.ARRAY:
        assert field_type.element is not None
        return "[]" + type_name(field_type.element)
    if field_type.cls is not None:
        return kafkas_struct(field_type.cls)
    return TYPE_NAMES[field_type.code] if field_type.kind is Kind.FIXED else field_type.kind.value.lower()


def innermost(field_type: FieldType) -> FieldType:
    return field_type if field_type.element is None else innermost(field_type.element)


def load(name: str) -> dict[str, Any]:
    return parse((SCHEMAS / f"{name}.json").read_text())


def parse(text: str) -> dict[str, Any]:
    without_comments = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*', lambda found: found.group(1) or "", text)
    loaded: dict[str, Any] = json.loads(without_comments)
    return loaded


def version_range(text: str) -> tuple[int, int]:
    if text == "none":
        return 1, 0
    first, dash, last = text.removesuffix("+").partition("-")
    return int(first), NEWEST_VERSION if text.endswith("+") else int(last if dash else first)


def flexible_since(text: str) -> int | None:
    first, last = version_range(text)
    return None if last < first else first


def intersection(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int] | None:
    first, last = max(one[0], other[0]), min(one[1], other[1])
    return (first, last) if first <= last else None


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
