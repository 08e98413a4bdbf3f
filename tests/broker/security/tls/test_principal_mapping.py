"""ssl.principal.mapping.rules: the cases of Kafka's SslPrincipalMapperTest, and the same results as Kafka's class for odd rules."""

from __future__ import annotations

import pytest

from broker.security.tls.principal_mapping import NoMatchingRuleError, PrincipalMapper
from config.properties import ConfigError

RULES = ", ".join(
    (
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    )
)


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
