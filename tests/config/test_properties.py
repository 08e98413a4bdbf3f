"""How a property's text becomes a value, and what Kafka refuses. The expectations are answers of 4.3.1's own ConfigDef."""

from __future__ import annotations

import pytest

from config.properties import ConfigError, PropertyTable, PropertyType, UpdateMode

TABLE = """
# a comment
a.boolean   boolean  false  -            -
an.int      int      5      1..          cluster
a.short     short    3      1..          -
a.long      long     -1     -2..         broker
a.level     int      -1     1..9|-1      -
a.ratio     double   0.5    0..1         -
a.any       double   0.5    -            -
a.list      list     ""     -            -
a.policy    list     delete compact|delete  -
a.role      list     required broker|controller! -
a.name      string   null   nonempty     -
a.case      string   Up     ~UP|DOWN     -
a.password  password null   -            -
replicas    list     ""     replicas     - internal
"""

PROPERTIES = PropertyTable(TABLE, {"an.int": ("other.int",)})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("a.boolean", "TRUE", True),
        ("an.int", " 7 ", 7),
        ("an.int", "+7", 7),
        ("a.level", "-1", -1),
        ("a.level", "9", 9),
        ("a.ratio", "1e-1", 0.1),
        ("a.list", "x , y,z", ("x", "y", "z")),
        ("a.list", "", ()),
        ("a.policy", "", ()),
        ("a.ratio", "1f", 1.0),
        ("a.any", "Infinity", float("inf")),
        ("a.policy", "compact, delete", ("compact", "delete")),
        ("a.policy", "compact,compact", ("compact",)),
        ("a.case", "down", "down"),
        ("replicas", "*", ("*",)),
        ("replicas", "0:1,1:2", ("0:1", "1:2")),
        ("replicas", "0:1,0:1", ("0:1", "0:1")),
    ],
)
def test_text_is_parsed_as_kafka_parses_it(name: str, text: str, value: object) -> None:
    assert PROPERTIES[name].parse(text) == value


@pytest.mark.parametrize(("name", "text"), [("a.policy", "compact,,delete"), ("a.list", "x,")])
def test_an_empty_element_is_refused_in_kafkas_words(name: str, text: str) -> None:
    """ConfigDef.ValidList begins otherwise than other refusals."""
    with pytest.raises(ConfigError) as raised:
        PROPERTIES[name].parse(text)

    assert str(raised.value) == f"Configuration '{name}' values must not be empty."


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.boolean", "yes", "Expected value to be either true or false"),
        ("an.int", "0", "Value must be at least 1"),
        ("an.int", "abc", "Not a number of type INT, at least 1"),
        ("an.int", "1_000", "Not a number of type INT"),
        ("an.int", "٣", "Not a number of type INT"),
        ("an.int", "2147483648", "Not a number of type INT"),
        ("an.int", "9" * 5000, "Not a number of type INT"),
        ("a.short", "32768", "Not a number of type SHORT"),
        ("a.long", "-3", "Value must be at least -2"),
        ("a.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("a.ratio", "1.1", "Value must be no more than 1"),
        ("a.ratio", "0x1", "Not a number of type DOUBLE, between 0 and 1"),
        ("a.policy", "Compact", "String must be one of: compact, delete"),
        ("a.role", "", "must not be empty. Valid values include: broker, controller"),
        ("a.name", "", "String must be non-empty"),
        ("a.case", "no", "String must be one of (case insensitive): UP, DOWN"),
        ("replicas", "a", "replicas must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId]"),
    ],
)
def test_wrong_text_is_refused_with_key_value_and_range(name: str, text: str, why: str) -> None:
    with pytest.raises(ConfigError) as raised:
        PROPERTIES[name].parse(text)

    message = str(raised.value)
    assert message.startswith("Invalid value ") and f"for configuration {name}: " in message and why in message
    assert "\n" not in message and len(message) < 500


def test_a_list_is_refused_for_the_element_that_is_wrong() -> None:
    """As in Kafka, whose ValidList checks one element after the other."""
    with pytest.raises(ConfigError, match=r"^Invalid value purge for configuration a\.policy: String must be one of: compact, delete$"):
        PROPERTIES["a.policy"].parse("delete,purge")


def test_error_lines_escape_what_cannot_be_printed() -> None:
    with pytest.raises(ConfigError) as raised:
        PROPERTIES["an.int"].parse("1\n\x1b[31m")

    assert "\\n\\x1b[31m" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("a.boolean", False, "false"),
        ("a.ratio", 0.5, "0.5"),
        ("a.ratio", 1.7976931348623157e308, "1.7976931348623157E308"),
        ("a.ratio", 9999999.5, "9999999.5"),
        ("a.ratio", 1e7, "1.0E7"),
        ("a.ratio", -12345678.9, "-1.23456789E7"),
        ("a.ratio", 0.00025, "2.5E-4"),
        ("a.ratio", 1e23, "1.0E23"),
        ("a.ratio", float("inf"), "Infinity"),
        ("a.list", ("x", "y"), "x,y"),
        ("a.name", None, None),
        ("a.password", "secret", None),
    ],
)
def test_values_are_printed_as_kafka_prints_them(name: str, value: object, text: str | None) -> None:
    assert PROPERTIES[name].format(value) == text


def test_table_lines_say_everything_about_a_property() -> None:
    role, number, internal = PROPERTIES["a.role"], PROPERTIES["an.int"], PROPERTIES["replicas"]

    assert role.is_required and role.default is None and role.is_read_only
    assert number.type is PropertyType.INT and number.default == 5 and number.synonyms == ("other.int",)
    assert number.update_mode is UpdateMode.CLUSTER_WIDE and number.attribute == "an_int"
    assert internal.is_internal and not number.is_internal
    assert "# a comment" not in PROPERTIES and len(PROPERTIES) == 14
