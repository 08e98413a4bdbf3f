"""How declared classes behave as Python classes."""

from __future__ import annotations

import pytest

from protocol.codec import encode, forget
from protocol.schema import Array, Int32, Kind, String, Uuid, api, compile_constructors, message, schema_of, since, struct
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


def test_constructors_can_be_compiled_ahead_of_the_first_instances() -> None:
    @struct
    class Leaf:
        number: Int32 = 7

    @struct
    class Tree:
        name: String = "a"

    assert "__init__" not in vars(Leaf)
    compile_constructors(Leaf)
    compile_constructors(Tree)

    assert "__init__" in vars(Leaf)
    assert (Leaf().number, Tree(name="b").name) == (7, "b")


def test_constructors_and_fields_go_with_the_last_codec_and_come_again() -> None:
    @struct
    class Inner:
        number: Int32 = 7

    @message(versions=(0, 1), flexible=None)
    class Outer:
        name: String = "a"
        inner: Array[Inner] = []

    globals()["Inner"] = Inner
    encoded = encode(Outer(inner=[Inner(number=8)]), 0)
    encode(Outer(), 1)
    fields = schema_of(Outer).fields

    forget(Outer, 0)
    assert "__init__" in vars(Outer)
    forget(Outer, 1)

    assert "__init__" not in vars(Outer)
    assert "__init__" not in vars(Inner)
    assert schema_of(Outer).fields is not fields
    assert encode(Outer(inner=[Inner(number=8)]), 0) == encoded
