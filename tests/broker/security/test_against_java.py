"""What Java 17 and Apache Kafka make of names and settings, and what is made of them here: one run of Java for all questions
(tests/support/java/SecurityAnswers.java)."""

from __future__ import annotations

import base64
import subprocess

from broker.security.tls.distinguished_name import name_text
from broker.security.tls.principal_mapping import NoMatchingRuleError, PrincipalMapper
from protocol.sasl import jaas
from protocol.sasl.exchange import SaslPropertyError
from protocol.sasl.jaas import SCRAM_LOGIN_MODULE
from tests.broker.security.tls.der_writer import (
    BITS,
    BMP,
    GENERAL,
    IA5,
    NUMERIC,
    OCTETS,
    PRINTABLE,
    T61,
    UNIVERSAL,
    VISIBLE,
    attribute,
    name,
    tlv,
)
from tests.broker.security.tls.test_principal_mapping import RULES
from tests.support.kafka import java_command, missing_java
from tests.support.requirements import needs

pytestmark = needs(missing_java())

TIMEOUT_S = 120
CN, C, L, ST, STREET, ORG, OU = (f"2.5.4.{number}" for number in (3, 6, 7, 8, 9, 10, 11))
UID, DC = "0.9.2342.19200300.100.1.1", "0.9.2342.19200300.100.1.25"
EMAIL = "1.2.840.113549.1.9.1"
SURNAME, SERIAL, TITLE, GIVEN, DN_QUALIFIER, POSTAL = "2.5.4.4", "2.5.4.5", "2.5.4.12", "2.5.4.42", "2.5.4.46", "2.5.4.17"
LONG_NUMBER = "1.3.6.1.4.1.311.60.2.1.3"

ODD_ATTRIBUTES = [
    "", " ", "  ", " a", "a ", "  a  b  ", "\ra\r", "\ta\t", "\na\n", "a,b", "a=b", "a+b", "a<b>c", "#a", "a#b", "a;b", 'a"b', "a\\b", "\\",
    ",", " ,", "# ", "a\0b", "\0", "a\x01b", "\x7f", "grüße", "日本語", "😀", "e\u0301", "\u00a0a\u00a0", "\u2028", "*.example.org",
    "a'b()-./:?", "@!$%&", "a" * 300,
]  # fmt: skip

MALFORMED = [
    b"\xed\xa0\x80x", b"\xed\xa0x", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80x", b"\xc0\x80x", b"\xc1\xbfx", b"\xe0\x80\x80x", b"\xe0\x9f\xbfx",
    b"\xf0\x8f\xbf\xbfx", b"\xf8\x88\x80\x80\x80x", b"\xf0\x9f\x98x", b"\xf0\x9f\x98", b"\xe2\x82x", b"\x80\x80", b"\xe2\x28\xa1",
]  # fmt: skip

NAMES = [
    name(),
    name(attribute(CN, "localhost")),
    name(attribute(C, "DE", PRINTABLE), attribute(ORG, "Org"), attribute(CN, "kafka")),
    name(attribute(CN, "first"), attribute(CN, "second")),
    name([attribute(CN, "a"), attribute(OU, "b")], attribute(ORG, "c")),
    name([attribute(OU, "b"), attribute(CN, "a"), attribute(UID, "u")]),
    name(*(attribute(kind, kind) for kind in (CN, C, L, ST, STREET, ORG, OU, UID, DC))),
    name(*(attribute(kind, "x") for kind in (SURNAME, SERIAL, TITLE, GIVEN, DN_QUALIFIER, POSTAL, LONG_NUMBER))),
    name(attribute(DC, "org", IA5), attribute(DC, "example", IA5), attribute(CN, "kafka")),
    name(attribute(EMAIL, "a@example.org", IA5), attribute(CN, "kafka")),
    name(attribute(EMAIL, "a@example.org")),
    *(name(attribute(CN, "kafka, 1", tag)) for tag in (PRINTABLE, T61, IA5, GENERAL, UNIVERSAL, NUMERIC, VISIBLE, OCTETS, BITS)),
    name(attribute(CN, "kafka".encode("utf-16-be"), BMP)),
    name(attribute(CN, "日本".encode("utf-16-be"), BMP)),
    name(attribute(CN, "gr\xfc\xdfe".encode("latin-1"), T61)),
    name(attribute(CN, b"\xff\xfe\xc3")),
    name(attribute(CN, b"\xe2\x82")),
    *(name(attribute(CN, value)) for value in MALFORMED),
    name(attribute(CN, tlv(0x13, b"inner"), 0x30)),
    name(attribute("2.999.1", "x"), attribute("1.2.3", "y")),
    *(name(attribute(CN, value), attribute(ORG, "Org")) for value in ODD_ATTRIBUTES),
]


COMMA = r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT"
CASES = [
    *(
        (RULES, name)
        for name in (
            "CN=Duke,OU=ServiceUsers,O=Org,C=US",
            "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
            "cn=duke,ou=sme,dc=mycp,dc=com",
            "cN=duke,OU=JavaSoft,O=Sun Microsystems",
            "OU=JavaSoft,O=Sun Microsystems,C=US",
            "",
        )
    ),
    (COMMA, r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz"),
    ("", "CN=a"),
    (" , ,,", "CN=a"),
    ("DEFAULT", "CN=a"),
    ("RULE://", ""),
    ("RULE://", "CN=a"),
    ("RULE:.*/X/", "CN=a"),  # two matches: the name, and nothing after it
    ("RULE:CN=(.*?)/<$1>/", "CN=abc"),
    ("RULE:(a|b)*/<$1>/", "abab"),
    ("RULE:(a)|b/<$1>/", "b"),
    ("RULE:[a-z]*=?[a-z]*/x/", "cn=ab"),
    ("RULE:^CN=(a)(b)?.*$/$1$2$3/", "CN=ac"),
    ("RULE:^CN=(.)(.)$/$2$1$0/", "CN=xy"),
    ("RULE:^CN=(.)(.)$/$23$11/", "CN=xy"),
    ("RULE:^CN=(.)(.)$/$1@$4/", "CN=xy"),
    ("RULE:^CN=(.)(.)$/$00$02/", "CN=xy"),
    (r"RULE:^CN=(.*)$/a\/\$1\\$1/", "CN=xy"),
    (r"RULE:^CN=a\/b$/c\/d/U", "CN=a/b"),
    ("RULE:^CN=(?<who>.*)$/${who}!/", "CN=xy"),
    ("RULE:(?i)^cn=(.*),ou=ADMINS$/$1/", "CN=Jo,OU=admins"),
    ("RULE:(?i)^cn=super$/admin/,DEFAULT", "CN=\u017fuper"),
    ("RULE:^CN=(.*)$/$1/L", "CN=ÄÖÜẞ"),
    ("RULE:^CN=(.*)$/$1/U", "CN=straße"),
    ("RULE:^CN=(.*)$/$1/,DEFAULT", "CN=a\rb"),
    ("RULE:^CN=(.*)$/$1/,DEFAULT", "CN=a\nb"),
    ("RULE:^CN=(.*)$/$1/,DEFAULT", "CN=a\u2028b"),
    ("RULE:^CN=a$/x/,DEFAULT", "CN=a\n"),
    ("RULE:^CN=(😀+)(.*)$/$2$1/", "CN=😀😀日本"),
    ("RULE:^CN=(.*),O=.*$/$1/L,RULE:^CN=(.*)$/$1/U", "CN=Ab"),
    ("RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/", "CN=xyz,O=a"),
    ("RULE:,RULE:,/,RULE:,\\//U,DEFAULT", ",RULE:,"),
]

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
JAAS_LINES = [
    *(f"{SCRAM_LOGIN_MODULE} required a={value};" for value in ODD_VALUES),
    *(f"{SCRAM_LOGIN_MODULE} {entry}" for entry in ODD_ENTRIES),
    f"'{SCRAM_LOGIN_MODULE}' required a=b;",
    f"//{SCRAM_LOGIN_MODULE} required;\n{SCRAM_LOGIN_MODULE} optional a=b;",
]


def test_answers_are_those_of_java() -> None:
    ours = {f"name {der.hex()}": name_text(der) for der in NAMES}
    ours |= {f"map {encode(rules)} {encode(distinguished_name)}": mapped(rules, distinguished_name) for rules, distinguished_name in CASES}
    ours |= {f"jaas {encode(line)}": options(line) for line in JAAS_LINES}

    java = ask(list(ours))

    assert len(ours) > 180
    assert not {question: (here, there) for (question, here), there in zip(ours.items(), java, strict=True) if here != there}


def ask(questions: list[str]) -> list[str]:
    """For each question a text, or `!` and an exception's class."""
    command = java_command("SecurityAnswers")
    run = subprocess.run(command, input="\n".join(questions) + "\n", capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return [base64.b64decode(line[1:]).decode() if line.startswith("=") else line for line in run.stdout.splitlines()]


def mapped(rules: str, distinguished_name: str) -> str:
    try:
        return PrincipalMapper(rules).map_name(distinguished_name)
    except NoMatchingRuleError:
        return "!NoMatchingRule"


def options(line: str) -> str:
    try:
        return "".join(f"{name}={value}\0" for name, value in sorted(jaas.parse(line).options.items()))
    except SaslPropertyError:
        return "!IllegalArgumentException"


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
