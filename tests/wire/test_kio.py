"""Goal: our bytes are those of kio, an independent implementation, in both directions and every version that it has.

kio knows no error codes or tagged fields beyond its own, and reads times into types with smaller ranges: values stay within those.
"""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from protocol.apis import APIS, DECLARED
from protocol.codec import decode, encode
from protocol.schema import Message
from tests.wire.messages import random_messages, versions_of

MESSAGES = [
    pytest.param(cls, api.key, entity_type, id=cls.__name__)
    for api in DECLARED.values()
    for cls, entity_type in ((api.request_class, EntityType.request), (api.response_class, EntityType.response))
]


def known_versions(cls: type[Message], key: int, entity_type: EntityType) -> list[int]:
    """The versions of a message that kio has."""
    return [version for version in versions_of(cls) if entity_type in schema_name_map[api_key_map[key]].get(version, {})]


def test_kio_has_every_served_version() -> None:
    for api in APIS.values():
        served = set(range(api.min_version, api.max_version + 1))
        assert served <= set(known_versions(api.request_class, api.key, EntityType.request)), api
        assert served <= set(known_versions(api.response_class, api.key, EntityType.response)), api


@pytest.mark.parametrize(("cls", "key", "entity_type"), MESSAGES)
def test_bytes_are_those_of_kio(cls: type[Message], key: int, entity_type: EntityType) -> None:
    for version in known_versions(cls, key, entity_type):
        entity_class = kio_class(key, version, entity_type)
        read, write = entity_reader(entity_class), entity_writer(entity_class)
        for message in random_messages(cls, version, is_for_kio=True):
            encoded = encode(message, version)

            entity, size = read(encoded, 0)
            written = BytesIO()
            write(written, entity)

            assert size == len(encoded), (version, message)
            assert written.getvalue() == encoded, (version, message)
            assert decode(cls, version, written.getvalue()) == (message, len(encoded)), (version, message)


def kio_class(key: int, version: int, entity_type: EntityType) -> Any:
    module_name, _, class_name = schema_name_map[api_key_map[key]][version][entity_type].partition(":")
    return getattr(import_module(module_name), class_name)
