"""What a Kafka property is: its name, type, default, range and how its text becomes a value. The counterpart of Kafka's ConfigDef.

The tables of properties are text, one line each (`config/server_table.py`, `config/topic.py`), so that they read like Kafka's own
documentation and cost next to nothing at start. Ranges are written as

    1..17            both ends inclusive; either end may be missing
    1..9|-1          a range, or one value outside it
    broker|controller    one of these words; of a list: each element (a leading ~ ignores case, a trailing ! refuses the empty list)
    nonempty         at least one character; of a list: at least one element
    replicas         Kafka's throttled-replica list: `*` or partition:broker pairs

A list's elements are not empty, and what is repeated counts once, as in Kafka since 4.1 (KIP-1161; throttled-replica lists are left as
they are). Refusals have Kafka's words, ConfigException's; where those leave out what is allowed, it is added. Nothing here reads files or
the environment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

Value = bool | int | float | str | tuple[str, ...] | None
"""A parsed property: classes and passwords are str, lists are tuples, null is None."""

HIDDEN_PASSWORD = "[hidden]"

_FLOAT = r"([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[fFdD]?"  # Double.parseDouble, but for hexadecimal
_REPLICA = r"([0-9]+:[0-9]+)?"


class ConfigError(Exception):
    """A property that cannot be used: `str()` is the one line a person needs. `key` is a property's name, or a file's."""

    def __init__(self, key: str, value: object, why: str, *, message: str | None = None) -> None:
        """`message` is the whole line where Kafka does not begin it as usual."""
        super().__init__(message or f"Invalid value {_printable(value)} for configuration {key}: {why}")
        self.key = key
        self.value = value
        self.why = why


class PropertyType(IntEnum):
    """Kafka's ConfigDef.Type, numbered as DescribeConfigs sends it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(IntEnum):
    """Where Kafka lets a running broker's property be altered."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


_INTEGER_LIMITS = {
    PropertyType.SHORT: (-(2**15), 2**15 - 1),
    PropertyType.INT: (-(2**31), 2**31 - 1),
    PropertyType.LONG: (-(2**63), 2**63 - 1),
}
_UPDATE_MODES = {"-": UpdateMode.READ_ONLY, "broker": UpdateMode.PER_BROKER, "cluster": UpdateMode.CLUSTER_WIDE}


class Property(NamedTuple):
    """One property as Kafka declares it. `default_text` is None where the default is null or the property is required."""

    name: str
    type: PropertyType
    default_text: str | None
    range: str
    update_mode: UpdateMode
    is_required: bool
    is_internal: bool
    synonyms: tuple[str, ...] = ()

    @property
    def attribute(self) -> str:
        """The name of the field that holds it: `log.segment.bytes` is `log_segment_bytes`."""
        return self.name.replace(".", "_")

    @property
    def is_sensitive(self) -> bool:
        return self.type is PropertyType.PASSWORD

    @property
    def is_read_only(self) -> bool:
        return self.update_mode is UpdateMode.READ_ONLY

    @property
    def default(self) -> Value:
        return None if self.default_text is None else self._convert(self.default_text)

    def parse(self, text: str) -> Value:
        """The value of `text`, checked against the range. Raises ConfigError."""
        text = text.strip()
        value = self._convert(text)
        violation = self.find_violation(value)
        if violation is not None:
            try:
                raise violation
            finally:
                del violation  # the traceback holds this frame: a cycle
        return value

    def format(self, value: Value) -> str | None:
        """`value` as Kafka prints it in DescribeConfigs, None for null. Sensitive values are never printed: None as well."""
        if value is None or self.is_sensitive:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return _java_double(value)
        return str(value)

    def _convert(self, text: str) -> Value:
        kind = self.type
        if kind in _INTEGER_LIMITS:
            return self._convert_integer(text)
        if kind is PropertyType.BOOLEAN:
            lowered = text.lower()
            if lowered not in ("true", "false"):
                raise ConfigError(self.name, text, "Expected value to be either true or false")
            return lowered == "true"
        if kind is PropertyType.DOUBLE:
            number = re.fullmatch(_FLOAT, text)
            if number is None:
                raise ConfigError(self.name, text, f"Not a number of type {kind.name}{_range_hint(self.range)}")
            return float(number[1])
        if kind is PropertyType.LIST:
            elements = [element.strip() for element in text.split(",")] if text else []
            # Throttled replicas are the one list that Kafka leaves as it is.
            return tuple(elements if self.range == "replicas" else dict.fromkeys(elements))
        return text

    def _convert_integer(self, text: str) -> int:
        low, high = _INTEGER_LIMITS[self.type]
        digits = text[1:] if text[:1] in ("+", "-") else text
        # Nineteen digits hold every 64-bit number: longer text is refused before int() has to look at it.
        if len(digits) > 19 or not (digits.isascii() and digits.isdigit()) or not low <= int(text) <= high:
            raise ConfigError(self.name, text, f"Not a number of type {self.type.name}{_range_hint(self.range)}")
        return int(text)

    def find_violation(self, value: Value) -> ConfigError | None:
        """What is wrong with `value`, None when it is inside the range."""
        if isinstance(value, tuple) and "" in value and self.range != "replicas":
            return ConfigError(self.name, value, "", message=f"Configuration '{self.name}' values must not be empty.")
        if self.range == "-" or value is None:
            return None
        wrong: Value = value
        if self.range == "replicas":
            why = _replicas_violation(self.name, value)
        elif self.range == "nonempty":
            why = None if value else "String must be non-empty"
        elif isinstance(value, int | float):
            why = _number_violation(value, self.range)
        else:
            wrong, why = _choice_violation(value, self.range)
        if why is None:
            return None
        if isinstance(wrong, tuple):
            wrong = f"[{', '.join(wrong)}]"
        return ConfigError(self.name, HIDDEN_PASSWORD if self.is_sensitive else self.format(wrong), why)


class PropertyTable(Mapping[str, Property]):
    """The properties declared by a table's lines: name, type, default, range, update mode and perhaps `internal`.

    A line is parsed when its property is first asked for: a start needs a dozen of the three hundred.
    """

    def __init__(self, text: str, synonyms: Mapping[str, tuple[str, ...]]) -> None:
        lines = (line for line in text.splitlines() if line and not line.startswith("#"))
        self._lines = {line.partition(" ")[0]: line for line in lines}
        self._parsed: dict[str, Property] = {}
        self._synonyms = synonyms

    def __getitem__(self, name: str) -> Property:
        known = self._parsed.get(name)
        if known is None:
            known = self._parsed[name] = _parse_line(self._lines[name], self._synonyms.get(name, ()))
        return known

    def __contains__(self, name: object) -> bool:
        return name in self._lines

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


def _parse_line(line: str, synonyms: tuple[str, ...]) -> Property:
    columns = line.split()
    name, kind, default, range_text, mode = columns[:5]
    return Property(
        name=name,
        type=PropertyType[kind.upper()],
        default_text={"null": None, "required": None, '""': ""}.get(default, default),
        range=range_text,
        update_mode=_UPDATE_MODES[mode],
        is_required=default == "required",
        is_internal=len(columns) > 5,
        synonyms=synonyms,
    )


def _number_violation(value: float, range_text: str) -> str | None:
    interval, _, extra = range_text.partition("|")
    low, high = interval.split("..")
    if extra and value == float(extra):
        return None
    is_low, is_high = low and value < float(low), high and value > float(high)
    if extra and (is_low or is_high):
        return f"Value must be between {low} and {high} or equal to {extra}"
    if is_low:
        return f"Value must be at least {low}"
    return f"Value must be no more than {high}" if is_high else None


def _range_hint(range_text: str) -> str:
    """`1..9|-1` in words, with a leading comma; empty for what is not an interval."""
    interval, _, extra = range_text.partition("|")
    if ".." not in interval:
        return ""
    low, high = interval.split("..")
    words = f", between {low} and {high}" if low and high else f", at least {low}" if low else f", no more than {high}"
    return f"{words} or equal to {extra}" if extra else words


def _choice_violation(value: Value, range_text: str) -> tuple[Value, str | None]:
    """The first element that is none of the choices, and why; the value and None when there is no such element."""
    choices = range_text.removeprefix("~").removesuffix("!").split("|")
    elements = value if isinstance(value, tuple) else (str(value),)
    ignores_case = range_text.startswith("~")
    known = {choice.lower() for choice in choices} if ignores_case else set(choices)
    if not elements and range_text.endswith("!"):
        return value, f"must not be empty. Valid values include: {', '.join(choices)}"
    for element in elements:
        if (element.lower() if ignores_case else element) not in known:
            return element, f"String must be one of{' (case insensitive)' if ignores_case else ''}: {', '.join(choices)}"
    return value, None


def _replicas_violation(name: str, value: Value) -> str | None:
    assert isinstance(value, tuple)
    if "".join(value) == "*" or all(re.fullmatch(_REPLICA, element) for element in value):
        return None
    form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    return f"{name} must be the literal '*' or a list of replicas in the following format: {form}"


def _java_double(value: float) -> str:
    """As Double.toString: `0.5`, `1.0E7`, `1.7976931348623157E308`, `Infinity`."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7 or math.isnan(value):
        return repr(value).replace("nan", "NaN")
    mantissa, _, power = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = int(power or 0) + len(digits) - len(fraction) - 1
    digits = digits.rstrip("0")
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _printable(value: object) -> str:
    """`value` on one line, and not much of it: error lines are for people, and the value may come from a client."""
    text = str(value)
    escaped = text if text.isprintable() else ascii(text)[1:-1]
    return escaped if len(escaped) <= 200 else escaped[:200] + "…"
