"""The property sasl.jaas.config: one login module with its options, of the three whose work is done here.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="secret" user_alice="…";

The text is read as Java's StreamTokenizer reads it for Kafka: words, quoted strings with escapes, comments. An error names the property
and what is wrong, and repeats no part of the text but a class name: the text holds passwords.

Source: JaasConfig, JaasContext.load; java.io.StreamTokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .exchange import SaslPropertyError

PLAIN_LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_BEARER_LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LOGIN_MODULES = (PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE, OAUTH_BEARER_LOGIN_MODULE)

CONTROL_FLAGS = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
USER_PREFIX = "user_"

_TOKEN = re.compile(
    r"""[\x00-\x20]+
    | //[^\r\n]* | /\*.*?(?:\*/|\Z) | /[^\r\n]*          # a lone slash begins a comment, too
    | (?P<number>-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]*)|-)
    | (?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_$.\-\xa0-\U0010ffff]*)
    | (?P<quoted>"(?:\\.|[^"\\\r\n])*"? | '(?:\\.|[^'\\\r\n])*'?)
    | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED = {"a": "\x07", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\x0b"}
_CLASS_NAME = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)+", re.ASCII)


class JaasEntry(NamedTuple):
    """A login module's class and options."""

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry({self.module})"  # options have passwords: they may be in no log and no traceback

    @property
    def users(self) -> dict[str, str]:
        """Passwords by name, from the options `user_<name>` of PlainLoginModule."""
        return {name.removeprefix(USER_PREFIX): value for name, value in self.options.items() if name.startswith(USER_PREFIX)}


class _Token(NamedTuple):
    """`text` is None for what Java's tokenizer gives no string for: a number or another character, which is in `character`."""

    text: str | None
    character: str = ""


def parse(text: str, key: str = "sasl.jaas.config") -> JaasEntry:
    """The only entry of the property `key`. Raises SaslPropertyError."""
    tokens = _tokens(text)
    entries = []
    while (first := next(tokens, None)) is not None:
        entries.append(_entry(first, tokens, key))
    if not entries:
        raise SaslPropertyError(key, "Login module not specified in JAAS config")
    if len(entries) > 1:
        raise SaslPropertyError(key, f"JAAS config property contains {len(entries)} login modules, should be 1 module")
    return entries[0]


def _entry(first: _Token, tokens: Iterator[_Token], key: str) -> JaasEntry:
    flag = next(tokens, None)
    if flag is None:
        raise SaslPropertyError(key, "Login module control flag not specified in JAAS config")
    if flag.text is None or flag.text.upper() not in CONTROL_FLAGS:
        raise SaslPropertyError(key, "Invalid login module control flag in JAAS config: it is required, requisite, sufficient or optional")
    options: dict[str, str] = {}
    while (name := next(tokens, None)) is not None and name.character != ";":
        equals, value = next(tokens, None), next(tokens, None)
        if name.text is None or equals is None or equals.character != "=" or value is None or value.text is None:
            raise SaslPropertyError(key, 'Value not specified for a key in JAAS config: each option is name="value"')
        options[name.text] = value.text
    if name is None:
        raise SaslPropertyError(key, "JAAS config entry not terminated by semi-colon")
    return JaasEntry(_module(first, key), options)


def _module(token: _Token, key: str) -> str:
    name = token.text or ""
    if name not in LOGIN_MODULES:
        shown = f"login module {name}" if _CLASS_NAME.fullmatch(name) else "text before the control flag"
        raise SaslPropertyError(key, f"the {shown} is none that Barnabas has: {', '.join(LOGIN_MODULES)}")
    return name


def _tokens(text: str) -> Iterator[_Token]:
    for found in _TOKEN.finditer(text):
        if found["word"] is not None:
            yield _Token(found["word"])
        elif found["quoted"] is not None:
            quote, body = found["quoted"][0], found["quoted"][1:]
            yield _Token(_ESCAPE.sub(_unescape, body.removesuffix(quote) if _is_closed(body, quote) else body))
        elif found["number"] is not None or found["other"] is not None:
            yield _Token(None, found["other"] or "")


def _is_closed(body: str, quote: str) -> bool:
    """Whether the last character is the closing quote: an escaped one is not."""
    return body.endswith(quote) and (len(body) - 1 - len(body[:-1].rstrip("\\"))) % 2 == 0


def _unescape(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "01234567":
        return chr(int(code, 8))
    return _ESCAPED.get(code, code)
