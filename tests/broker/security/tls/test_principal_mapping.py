"""ssl.principal.mapping.rules: the cases of Kafka's SslPrincipalMapperTest, and the same results as Kafka's class for odd rules."""

from __future__ import annotations

import pytest

from broker.security.tls.principal_mapping import NoMatchingRuleError, PrincipalMapper
from config.properties import ConfigError
from tests.broker.security.java_answers import kafka_principals
from tests.support.kafka import missing_java
from tests.support.requirements import needs

RULES = ", ".join(
    (
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    )
)
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
    ("RULE:(?i)^cn=super$/root/,DEFAULT", "CN=\u017fuper"),
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


@needs(missing_java())
def test_results_are_those_of_kafka() -> None:
    differences = {
        case: (mapped(*case), kafka) for case, kafka in zip(CASES, kafka_principals(CASES), strict=True) if mapped(*case) != kafka
    }
    assert not differences


def mapped(rules: str, name: str) -> str:
    try:
        return PrincipalMapper(rules).map_name(name)
    except NoMatchingRuleError:
        return "!NoMatchingRule"


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_first_rule_that_matches_decides(name: str, principal: str) -> None:
    assert PrincipalMapper(RULES).map_name(name) == principal


def test_name_without_a_rule_is_not_let_in() -> None:
    with pytest.raises(NoMatchingRuleError, match="applies to the name 'CN=x'"):
        PrincipalMapper("RULE:^O=(.*)$/$1/").map_name("CN=x")


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
    ],
)
def test_rules_that_kafka_refuses_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"^ssl\.principal\.mapping\.rules: Invalid rule: `"):
        PrincipalMapper(rules)


@pytest.mark.parametrize("pattern", ["(?=a)a", "(?<!a)b", r"(a)\1", "a*+", r"\h", r"\R", r"\p{Lower}", "(", "[a", "a**"])
def test_pattern_that_re2_lacks_is_refused_with_the_difference(pattern: str) -> None:
    with pytest.raises(ConfigError, match="RE2, which matches here, has no lookaround"):
        PrincipalMapper(f"RULE:{pattern}/x/")


@pytest.mark.parametrize("pattern", ["[a-z&&[^b]]", "[a[b]]", "[[:alpha:]]", r"\C", r"a\Z", r"\v", "(?U)a", "(?iU)a", "(?x)a"])
def test_pattern_that_re2_reads_otherwise_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"reads .* otherwise than Java"):
        PrincipalMapper(f"RULE:{pattern}/x/")


@pytest.mark.parametrize("pattern", [r"\[a&&b\]", r"[\[a\]]", r"\\\\C", "a&&b", "[]a]", "(?i)a"])
def test_pattern_that_only_looks_so_is_taken(pattern: str) -> None:
    assert PrincipalMapper(f"RULE:{pattern}/x/,DEFAULT").map_name("another name") == "another name"


@pytest.mark.parametrize("rule", ["RULE:a/$/", "RULE:a/$x/", "RULE:a/$1/", "RULE:(a)/${b}/", "RULE:(a)/$1$/"])
def test_replacement_that_java_refuses_at_the_first_match_is_refused_at_the_start(rule: str) -> None:
    with pytest.raises(ConfigError, match="Invalid rule"):
        PrincipalMapper(rule)


def test_hostile_name_takes_little_time() -> None:
    """A backtracking engine would never end."""
    mapper = PrincipalMapper(r"RULE:^CN=((a|a)*)*b$/$1/,DEFAULT")

    assert mapper.map_name("CN=" + "a" * 5000) == "CN=" + "a" * 5000
