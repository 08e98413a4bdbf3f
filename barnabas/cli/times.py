"""Times and durations as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from barnabas.cli.errors import NotUnderstoodError

DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?")
ISO_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?")
SECONDS_DIGITS_MAX = 11
"""Of a time as a number: what is longer has milliseconds. 11 digits of seconds reach the year 5138."""


def parse_time_ms(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 of `@…` without its `@`: a number of seconds or milliseconds, ISO 8601 (UTC without a zone), or a duration
    before now as in -1h30m. Raises NotUnderstoodError."""
    if text.startswith("-"):
        return now_ms - parse_duration_ms(text[1:])
    if text.isdigit():
        return int(text) * (1_000 if len(text) <= SECONDS_DIGITS_MAX else 1)
    if text == "now":
        return now_ms
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as e:
        raise NotUnderstoodError(f"{text!r} is no time: 2026-01-31T10:00:00, 1769853600, 1769853600000 or -1h30m") from e
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1_000)


def parse_duration_ms(text: str) -> int:
    """1d2h3m4s5ms, or ISO 8601 as Kafka's tools take it (P1DT2H). Raises NotUnderstoodError."""
    if text and (found := DURATION.fullmatch(text)):
        days, hours, minutes, seconds, milliseconds = (int(part or 0) for part in found.groups())
    elif len(text) > 1 and (found := ISO_DURATION.fullmatch(text)):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        milliseconds = 0
    else:
        raise NotUnderstoodError(f"{text!r} is no duration: 1d, 2h30m, 10s, 500ms or P1DT2H")
    length = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
    return length // timedelta(milliseconds=1)


def to_text(time_ms: int) -> str:
    """ISO 8601 in UTC with milliseconds; the number where no calendar has it."""
    try:
        moment = datetime.fromtimestamp(time_ms / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1_000:03}Z"
