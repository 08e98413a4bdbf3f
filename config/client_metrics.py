"""The configs of a client metrics subscription (KIP-714): which clients are to push which metrics, and how often.

A pattern of `match` has RE2's syntax, which a stranger's pattern cannot make slow. Kafka has Java's, which is the same but for what the
error message names.

Source: ClientMetricsConfigs. Loaded when subscriptions are first asked for or changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from config.properties import ConfigError, PropertyTable
from config.safe_patterns import PATTERN_CHARACTERS_MAX, PatternError, SafePattern

# Columns as in config/server_table.py.
_CLIENT_METRICS_TABLE = """
interval.ms  int   300000  -  -
match        list  ""      -  -
metrics      list  ""      -  -
"""

CLIENT_METRICS_PROPERTIES = PropertyTable(_CLIENT_METRICS_TABLE, {})

CLIENT_METRICS_DOCUMENTATION = {
    "interval.ms": "Metrics push interval in milliseconds",
    "match": "Client match criteria",
    "metrics": "Telemetry metric name prefix list",
}

INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 3_600_000

MATCH_PARAMETERS = frozenset(
    ("client_instance_id", "client_id", "client_software_name", "client_software_version", "client_source_address", "client_source_port")
)
"""What of a client a subscription may ask for."""


DIFFERENCES_FROM_JAVA = (
    "the syntax is RE2's, without Java's look-around, back references, possessive quantifiers, nested character classes and "
    f"\\u escapes, with at most {PATTERN_CHARACTERS_MAX} characters"
)

_CLASSES = re.compile(
    r"\\Q.*?(?:\\E|$)"  # a quotation
    r"|\\."
    r"|\[\^?\]?(?:[^]\\[&]|\\.|&(?!&))*(?P<nested>\[|&&)?",  # a class, with a union or an intersection in it, or without
    re.DOTALL,
)


class SubscriptionError(Exception):
    """A subscription that is refused as a request, not for a config of it (Kafka's InvalidRequestException)."""


def validate_client_metrics(name: str, overrides: Mapping[str, str]) -> None:
    """Raises SubscriptionError or ConfigError, in Kafka's words, unless the subscription can have these configs, all that it sets."""
    if not name:
        raise SubscriptionError("Subscription name can't be empty")
    for key in overrides:
        if key not in CLIENT_METRICS_PROPERTIES:
            raise SubscriptionError(f"Unknown client metrics configuration: {key}")
    for key, text in overrides.items():
        try:
            value = CLIENT_METRICS_PROPERTIES[key].parse(text)
        except ConfigError as error:
            if key == "interval.ms":
                raise
            raise ConfigError(key, text, "", message=f"Configuration '{key}' values must not be empty.") from error
        if isinstance(value, int) and not INTERVAL_MS_MIN <= value <= INTERVAL_MS_MAX:
            raise SubscriptionError(f"Invalid value {value} for {key}, interval must be between 100 and 3600000 (1 hour)")
        if key == "match" and isinstance(value, tuple):
            parse_match(value)


def parse_match(criteria: tuple[str, ...]) -> dict[str, SafePattern]:
    """What each criterion's parameter has to match as a whole. Raises ConfigError."""
    patterns: dict[str, SafePattern] = {}
    for criterion in criteria:
        parameter, _, pattern = (part.strip() for part in criterion.partition("="))
        illegal = f"Illegal client matching pattern: {criterion}"
        if parameter not in MATCH_PARAMETERS or not pattern or "=" in pattern:
            raise ConfigError("match", criterion, "", message=illegal)
        try:
            patterns[parameter] = _pattern(pattern)
        except PatternError as error:
            raise ConfigError("match", criterion, "", message=f"{illegal} ({error}; {DIFFERENCES_FROM_JAVA})") from error
    return patterns


def _pattern(text: str) -> SafePattern:
    if any(match["nested"] for match in _CLASSES.finditer(text)):
        raise PatternError("a character class within another")  # RE2 would read it in another way than Java
    return SafePattern(text)
