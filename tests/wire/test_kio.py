"""Goal: our bytes are those of kio, an independent implementation, in both directions and every version that it has.

kio knows no error codes or tagged fields beyond its own, and reads times into types with smaller ranges: values stay within those.
"""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from protocol.apis import APIS, DECLARED
from protocol.codec import decode, encode
from protocol.schema import Message
from tests.wire.messages import values, versions_of

KIO_VERSIONS = [
    pytest.param(cls, version, api.key, entity_type, id=f"{cls.__name__}-v{version}")
    for api in DECLARED.values()
    for cls, entity_type in ((api.request_class, EntityType.request), (api.response_class, EntityType.response))
    for _, version in versions_of(iter([cls]))
    if entity_type in schema_name_map[api_key_map[api.key]].get(version, {})
]


def test_kio_has_every_served_version() -> None:
    known = {tuple(known.values[:2]) for known in KIO_VERSIONS}
    served = {
        (cls, version)
        for api in APIS.values()
        for cls in (api.request_class, api.response_class)
        for version in range(api.min_version, api.max_version + 1)
    }

    assert served <= known


@pytest.mark.parametrize(("cls", "version", "key", "entity_type"), KIO_VERSIONS)
@settings(settings.get_profile("wire"))
@given(data=st.data())
def test_bytes_are_those_of_kio(cls: type[Message], version: int, key: int, entity_type: EntityType, data: st.DataObject) -> None:
    message = data.draw(values(cls, version, is_for_kio=True))
    entity_class = kio_class(key, version, entity_type)
    encoded = encode(message, version)

    entity, size = entity_reader(entity_class)(encoded, 0)
    written = BytesIO()
    entity_writer(entity_class)(written, entity)

    assert size == len(encoded)
    assert written.getvalue() == encoded
    assert decode(cls, version, written.getvalue()) == (message, len(encoded))


def kio_class(key: int, version: int, entity_type: EntityType) -> Any:
    module_name, _, class_name = schema_name_map[api_key_map[key]][version][entity_type].partition(":")
    return getattr(import_module(module_name), class_name)
