"""How declared classes behave as Python classes."""

from __future__ import annotations

import pytest

from protocol.schema import Array, Int32, Kind, String, Uuid, api, schema_of, since, struct
from protocol.uuids import ZERO_UUID


@struct
class Inner:
    number: Int32 = 7


@api(key=99, versions=(1, 4), flexible=3)
class ExampleRequest:
    """An example."""

    name: String = ""
    note: String | None = since(2, nullable_since=3, default="", ignorable=True)
    ids: Array[Uuid] = []
    inner: Inner = since(3, until=3, factory=Inner)


def test_fields_have_their_defaults() -> None:
    request = ExampleRequest()

    assert (request.name, request.note, request.ids, request.inner) == ("", "", [], Inner(number=7))


def test_arguments_are_keywords() -> None:
    assert ExampleRequest(name="a").name == "a"
    with pytest.raises(TypeError):
        ExampleRequest("a")
    with pytest.raises(TypeError):
        ExampleRequest(nmae="a")


def test_lists_and_structs_are_not_shared_between_instances() -> None:
    first, second = ExampleRequest(), ExampleRequest()

    first.ids.append(ZERO_UUID)
    first.inner.number = 8

    assert (second.ids, second.inner.number) == ([], 7)


def test_an_unknown_attribute_is_refused() -> None:
    with pytest.raises(AttributeError):
        ExampleRequest().nmae = "a"  # type: ignore[attr-defined]


def test_equality_is_by_value_and_instances_are_not_hashable() -> None:
    assert ExampleRequest(name="a") == ExampleRequest(name="a")
    assert ExampleRequest(name="a") != ExampleRequest(name="b")
    assert Inner() != ExampleRequest()
    with pytest.raises(TypeError):
        hash(Inner())


def test_text_names_the_fields() -> None:
    assert repr(Inner(number=3)) == "Inner(number=3)"


def test_schema_knows_versions_and_fields() -> None:
    schema = schema_of(ExampleRequest)
    name, note, ids, inner = schema.fields

    assert (schema.key, schema.versions, schema.flexible_since) == (99, (1, 4), 3)
    assert [name.is_in(1), note.is_in(1), inner.is_in(3), inner.is_in(4)] == [True, False, True, False]
    assert [note.is_nullable_in(2), note.is_nullable_in(3), name.is_nullable_in(3)] == [False, True, False]
    assert [name.type.kind, ids.type.kind, inner.type.kind] == [Kind.STRING, Kind.ARRAY, Kind.STRUCT]


def test_a_class_that_is_not_declared_has_no_schema() -> None:
    with pytest.raises(TypeError, match="not a declared message"):
        schema_of(int)


def test_a_field_needs_a_default_or_a_factory() -> None:
    with pytest.raises(TypeError, match="default or a factory"):
        since(1)


def test_docstring_and_name_of_the_declaration_stay() -> None:
    assert ExampleRequest.__doc__ == "An example."
    assert ExampleRequest.__name__ == "ExampleRequest"
    assert ExampleRequest.__module__ == __name__
