"""sasl.jaas.config: the cases of Kafka's JaasContextTest, what Java's StreamTokenizer does, and what is refused."""

from __future__ import annotations

import pytest

from protocol.sasl.exchange import SaslPropertyError
from protocol.sasl.jaas import LOGIN_MODULES, PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE, parse

PLAIN = PLAIN_LOGIN_MODULE


def test_options_and_users_of_a_module() -> None:
    entry = parse(f'{PLAIN} required username="admin" password="a secret" user_admin="a secret" user_alice=word;')

    assert entry.module == PLAIN
    assert entry.options["username"] == "admin"
    assert entry.users == {"admin": "a secret", "alice": "word"}


@pytest.mark.parametrize("module", LOGIN_MODULES)
@pytest.mark.parametrize("flag", ["required", "Requisite", "SUFFICIENT", "optional"])
def test_modules_and_flags_that_are_taken(module: str, flag: str) -> None:
    assert parse(f"{module} {flag};").options == {}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('"quoted \\"string\\""', 'quoted "string"'),
        ("'single \"quotes\"'", 'single "quotes"'),
        (r'"tab\tnew\nline"', "tab\tnew\nline"),
        (r'"octal \101\60\7x"', "octal A0\x07x"),
        (r'"octal \4011"', "octal \x2011"),
        (r'"back\\slash\\"', "back\\slash\\"),
        (r'"just \q"', "just q"),
        ('""', ""),
        ('"semi;colon=equals//slashes/*stars*/"', "semi;colon=equals//slashes/*stars*/"),
        ("word_1-2.3$", "word_1-2.3$"),
        ('"grüße"', "grüße"),
        ("grüße", "grüße"),
    ],
)
def test_values_as_java_s_tokenizer_reads_them(written: str, value: str) -> None:
    assert parse(f"{SCRAM_LOGIN_MODULE} required\n password={written} ;").options == {"password": value}


@pytest.mark.parametrize("comment", ["// to the end\n", "/* over\nlines */", "/ a lone slash begins one, too\r", "\t\r\n"])
def test_comments_and_blanks_are_skipped(comment: str) -> None:
    assert parse(f'{comment}{PLAIN}{comment} required {comment}username{comment}={comment}"a"{comment};{comment}').options == {
        "username": "a"
    }


def test_last_value_of_an_option_counts() -> None:
    assert parse(f"{PLAIN} required a=first a=second;").options == {"a": "second"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Login module not specified"),
        (" // nothing", "Login module not specified"),
        (PLAIN, "control flag not specified"),
        (f"{PLAIN};", "Invalid login module control flag"),
        (f"{PLAIN} needed;", "Invalid login module control flag"),
        (f"{PLAIN} required", "not terminated by semi-colon"),
        (f'{PLAIN} required username="a"', "not terminated by semi-colon"),
        (f"{PLAIN} required username;", "Value not specified"),
        (f"{PLAIN} required username=;", "Value not specified"),
        (f"{PLAIN} required username=", "Value not specified"),
        (f"{PLAIN} required username=123;", "Value not specified"),  # a number is none of Java's strings
        (f"{PLAIN} required 1user=a;", "Value not specified"),
        (f"{PLAIN} required; {PLAIN} required;", "contains 2 login modules, should be 1 module"),
    ],
)
def test_text_that_kafka_refuses_is_refused(text: str, why: str) -> None:
    with pytest.raises(SaslPropertyError) as caught:
        parse(text, "listener.name.x.plain.sasl.jaas.config")

    assert str(caught.value).startswith("listener.name.x.plain.sasl.jaas.config: ")
    assert why in str(caught.value)


@pytest.mark.parametrize("module", ["com.sun.security.auth.module.JndiLoginModule", "com.sun.security.auth.module.Krb5LoginModule"])
def test_other_modules_are_refused_by_name(module: str) -> None:
    with pytest.raises(SaslPropertyError, match=f"the login module {module} is none that Barnabas has: .*ScramLoginModule"):
        parse(f'{module} required a="b";')


@pytest.mark.parametrize(
    "text", ['"hush" required;', f"{PLAIN} hush;", f'{PLAIN} required password="hush" hush;', f"{PLAIN} required password=hush", "hush"]
)
def test_error_repeats_nothing_of_the_text(text: str) -> None:
    with pytest.raises(SaslPropertyError) as caught:
        parse(text)

    assert "hush" not in str(caught.value)
    assert "hush" not in repr(caught.value)


def test_entry_shows_no_option() -> None:
    assert "hush" not in repr(parse(f"{PLAIN} required password=hush;"))
