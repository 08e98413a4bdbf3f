"""ssl.principal.mapping.rules: how the distinguished name of a TLS client becomes the name of its principal (KIP-371).

    RULE:pattern/replacement/[LU]     DEFAULT

The first rule whose pattern matches the whole name decides. The patterns are RE2's, which needs no more time for a name that a client
chose. What Java has and RE2 lacks is refused at the start, and so is what they read differently (`_DIFFERENT`). A replacement that Java
would refuse at the first match is refused at the start, too.

Source: SslPrincipalMapper; java.util.regex.Matcher.replaceAll.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from config.properties import ConfigError

KEY = "ssl.principal.mapping.rules"

_RULE = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE, re.ASCII)

_DIFFERENT = (
    (re.compile(r"(?<!\\)(?:\\\\)*\\[CvZ]"), r"\C, \v or \Z"),
    (re.compile(r"\(\?[a-zA-Z]*[dUux]"), "a flag d, u, U or x"),
)
_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_LINE_END = re.compile("[\n\r\x85\u2028\u2029]")
_FOLDED_TO_ASCII = re.compile("[\u017f\u212a]")
_FLAG_IGNORE_CASE = re.compile(r"\(\?[a-zA-Z]*i")


class NoMatchingRuleError(Exception):
    """No rule applies to a name: the client is not let in."""


class _Rule(NamedTuple):
    """`pattern` is RE2's. `replacement` has texts, and groups by number. `case` is L, U or empty."""

    pattern: re.Pattern[str]
    replacement: tuple[str | int, ...]
    case: str
    ignores_case: bool

    def apply(self, name: str) -> str | None:
        """The principal's name; None if the pattern does not match the whole name.

        Java's `.` and `$` know more line ends than RE2's, and Java's `(?i)` is about ASCII alone: names in which that could matter match
        nothing."""
        if _LINE_END.search(name) or (self.ignores_case and _FOLDED_TO_ASCII.search(name)) or not self.pattern.fullmatch(name):
            return None
        result = self._replace_all(name)
        return result.lower() if self.case == "L" else result.upper() if self.case == "U" else result

    def _replace_all(self, name: str) -> str:
        """Every match that a search finds, which need not be the match of the whole name: `CN=(.*?)` finds `CN=` alone."""
        parts = []
        copied = position = 0
        while position <= len(name) and (found := self.pattern.search(name, position)):
            start, end = found.span()
            parts.append(name[copied:start])
            parts += [part if isinstance(part, str) else found.group(part) or "" for part in self.replacement]
            copied = end
            position = end if end > start else end + 1
        return "".join((*parts, name[copied:]))


class PrincipalMapper:
    """The rules of one value of the property. Raises ConfigError."""

    def __init__(self, rules: str) -> None:
        self._rules = [_parse(text) for found in _SPLITTER.finditer(rules.strip()) if (text := found[1])]

    def map_name(self, distinguished_name: str) -> str:
        """The name of the principal. Raises NoMatchingRuleError."""
        for rule in self._rules:
            name = distinguished_name if rule is None else rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRuleError(f"No rule of {KEY} applies to the name {distinguished_name!r}")


def _parse(text: str) -> _Rule | None:
    """None for DEFAULT."""
    found = _PARSER.match(text)
    assert found is not None, "the last alternative matches nothing at all"
    if found.end() != len(text):
        raise _refusal(f"Invalid rule: `{text}`, unmatched substring: `{text[found.end() :]}`")
    if found[1] is not None:
        return None
    pattern = _compile(found[2], text)
    return _Rule(pattern, tuple(_replacement(found[4], pattern, text)), found[6], bool(_FLAG_IGNORE_CASE.search(found[2])))


def _compile(pattern: str, rule: str) -> re.Pattern[str]:
    import re2  # with the first rule: 7 ms and 2.5 MB

    why = _difference(pattern)
    if why is not None:
        raise _refusal(f"Invalid rule: `{rule}`: RE2, which matches here, reads {why} otherwise than Java")
    options = re2.Options()
    options.log_errors = False
    try:
        compiled: re.Pattern[str] = re2.compile(pattern, options)
    except re2.error as e:
        message = e.args[0].decode("utf-8", "replace") if isinstance(e.args[0], bytes) else e.args[0]
        lacks = "RE2, which matches here, has no lookaround, back-references or possessive quantifiers, and fewer escapes than Java"
        raise _refusal(f"Invalid rule: `{rule}`: {message}; {lacks}") from e
    return compiled


def _difference(pattern: str) -> str | None:
    for different, shown in _DIFFERENT:
        if different.search(pattern):
            return shown
    for found in _CLASS.finditer(pattern):
        inside = re.sub(r"\\.", "", found[0][1:])
        if found[0][0] == "[" and ("[" in inside or "&&" in inside):
            return "a [ or && inside of [ ]"
    return None


def _replacement(text: str, pattern: re.Pattern[str], rule: str) -> list[str | int]:
    r"""The parts of a replacement: `\x` is x itself, `$n` and `${name}` are groups. A number without a group loses its last digits, and is
    text where that finds none (escapeLiteralBackReferences)."""
    parts: list[str | int] = []
    position = 0
    for found in re.finditer(r"\\(.)|\$\{(\w+)\}|\$([0-9]+)", text, re.ASCII | re.DOTALL):
        parts.append(_literal(text[position : found.start()], rule))
        position = found.end()
        if found[1] is not None:
            parts.append(found[1])
        elif found[2] is not None:
            if found[2] not in pattern.groupindex:
                raise _refusal(f"Invalid rule: `{rule}`: no group is named {found[2]}")
            parts.append(pattern.groupindex[found[2]])
        else:
            parts += _group(found[3], pattern.groups, rule)
    parts.append(_literal(text[position:], rule))
    return parts


def _group(digits: str, groups: int, rule: str) -> tuple[str | int, ...]:
    used = next((count for count in range(len(digits), 0, -1) if int(digits[:count]) <= groups), None)
    if digits.startswith("0"):
        used = 1 if groups == 0 or used is None else used
    elif groups == 0:
        raise _refusal(f"Invalid rule: `{rule}`: the replacement names a group, and the pattern has none")
    return (f"${digits}",) if used is None else (int(digits[:used]), digits[used:])


def _literal(text: str, rule: str) -> str:
    if "$" in text or "\\" in text:
        raise _refusal(f"Invalid rule: `{rule}`: $ in a replacement needs the number of a group after it, or \\ before it")
    return text


def _refusal(why: str) -> ConfigError:
    return ConfigError(KEY, None, why, message=f"{KEY}: {why}")
