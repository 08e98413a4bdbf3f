"""sasl.jaas.config: the cases of Kafka's JaasContextTest, what Java's StreamTokenizer does, and what is refused."""

from __future__ import annotations

import pytest

from broker.security.sasl.jaas import LOGIN_MODULES, PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE, parse
from config.properties import ConfigError
from tests.broker.security.java_answers import kafka_jaas_options
from tests.support.kafka import missing_java
from tests.support.requirements import needs

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


ODD_VALUES = (
    '"x', '"x\ny"', "'x;", '"a\\"', r'"\400"', r'"\777"', r'"\8"', r'"\x41"', r'"\u0041"', '"\t"', "x'y'", 'x"y"', "-x", "x-", "_", "$",
    "x.y", ".x", ".5", "-5", "--5", "5x", "x5", "x/y", "x//y", "x/*y*/z", "\u00a0", "\u0080", "\u009f", "x\u00a0y", "😀", "a=b", "=", ";",
    "x y", "x;y", "\x7f", "x@y", "x:y", "#x", "*", "{x}", "x,y", '"x" "y"', "''", '"\\\n"', r'"\a\b\f\v"', "/x", "/*", "x/*", '"\0"',
)  # fmt: skip
ODD_ENTRIES = (
    "required a=b c=d;", "required a = b;", "REQUIRED\ta\n=\rb\f;", "required 'a'=b;", '"required" a=b;', "required a=b;;", "required;x",
    "required a=b c;", "required a b=c;", "required =;", "required ; // end", "required a=b; /* end", "required a=b; / end",
    "required\u2028a=b;", "required user_a=1;", 'required user_1="1";', "required user_1=x;", "required a.b-c_d$e=f;", "'required;",
    "ſufficient;",
)  # fmt: skip
ODD = [
    *(f"{SCRAM_LOGIN_MODULE} required a={value};" for value in ODD_VALUES),
    *(f"{SCRAM_LOGIN_MODULE} {entry}" for entry in ODD_ENTRIES),
    f"'{SCRAM_LOGIN_MODULE}' required a=b;",
    f"//{SCRAM_LOGIN_MODULE} required;\n{SCRAM_LOGIN_MODULE} optional a=b;",
]


@needs(missing_java())
def test_odd_texts_have_kafka_s_options() -> None:
    differences = {text: (options(text), kafka) for text, kafka in zip(ODD, kafka_jaas_options(ODD), strict=True) if options(text) != kafka}
    assert not differences


def options(text: str) -> str:
    try:
        return "".join(f"{name}={value}\0" for name, value in sorted(parse(text).options.items()))
    except ConfigError:
        return "!IllegalArgumentException"


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
    with pytest.raises(ConfigError) as caught:
        parse(text, "listener.name.x.plain.sasl.jaas.config")

    assert str(caught.value).startswith("listener.name.x.plain.sasl.jaas.config: ")
    assert why in str(caught.value)


@pytest.mark.parametrize("module", ["com.sun.security.auth.module.JndiLoginModule", "com.sun.security.auth.module.Krb5LoginModule"])
def test_other_modules_are_refused_by_name(module: str) -> None:
    with pytest.raises(ConfigError, match=f"the login module {module} is none that Barnabas has: .*ScramLoginModule"):
        parse(f'{module} required a="b";')


@pytest.mark.parametrize(
    "text", ['"hush" required;', f"{PLAIN} hush;", f'{PLAIN} required password="hush" hush;', f"{PLAIN} required password=hush", "hush"]
)
def test_error_repeats_nothing_of_the_text(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)

    assert "hush" not in str(caught.value)
    assert "hush" not in repr(caught.value.value)


def test_entry_shows_no_option() -> None:
    assert "hush" not in repr(parse(f"{PLAIN} required password=hush;"))
