"""A console at a secured server, ours and Apache Kafka: three contexts, and users with passwords."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlencode

from confluent_kafka.admin import ScramMechanism

from barnabas.cli.client_properties import of_librdkafka
from barnabas.cli.errors import NotLetInError
from barnabas.cli.settings import Settings
from barnabas.console.logins import log_in
from tests.barnabas.console.running import SEEN_S, Answer, Console, environment
from tests.support.secured_cluster import SecuredCluster

ALICE, BOB = ("alice", 'wonder "land"\\'), ("bob", "the builder")
CONSOLE = ("watcher", "only-looks")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SECURED, PLAIN, OPEN = "secured", "plain", "open"
"""The contexts: SCRAM over TLS, PLAIN without, and neither."""
_CSRF = re.compile(r'name="csrf" value="([^"]+)"')


def make_cluster(kind: str, directory: Path) -> SecuredCluster:
    """With a further listener on which the users log in by PLAIN."""
    users = " ".join(f'user_{name}="{_quoted(password)}"' for name, password in (ALICE, BOB, CONSOLE))
    settings = {
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": _value(f"{PLAIN_MODULE} required {users};"),
    }
    return SecuredCluster(directory, kind=kind, settings=settings, listeners=["SASL_PLAINTEXT"])


def add_users(cluster: SecuredCluster) -> None:
    """Alice may do what begins with "made"; Bob may do nothing."""
    rights = (f"{operation} topic made*" for operation in ("CREATE", "DESCRIBE", "WRITE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS"))
    cluster.allow(ALICE[0], *rights)
    cluster.allow(CONSOLE[0], "DESCRIBE topic *", "READ topic *", "DESCRIBE_CONFIGS topic *", "DESCRIBE group *")
    for user in (ALICE, BOB, CONSOLE):
        set_password(cluster, user)


def set_password(cluster: SecuredCluster, user: tuple[str, str]) -> None:
    """Returns when the broker lets in with it: Apache Kafka's learns of it after the controller's answer."""
    cluster.add_credential(*user, ScramMechanism.SCRAM_SHA_512)
    own = of_librdkafka(cluster.administrator().librdkafka())
    deadline_s = time.monotonic() + SEEN_S
    while True:
        try:
            log_in(Settings(own.librdkafka, own.java), *user)
            return
        except NotLetInError:
            if time.monotonic() > deadline_s:
                raise


def write_contexts(home: Path, cluster: SecuredCluster) -> None:
    name, password = CONSOLE
    administrator = cluster.administrator().librdkafka()
    scram = administrator | {"sasl.username": name, "sasl.password": password}
    plain = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": name, "sasl.password": password}
    contexts = {
        SECURED: scram,
        PLAIN: plain | {"bootstrap.servers": cluster.addresses("SASL_PLAINTEXT")},
        OPEN: {"bootstrap.servers": cluster.server.bootstrap},
    }
    lines = [f'current = "{SECURED}"']
    for context, properties in contexts.items():
        lines += [
            f"[contexts.{context}]",
            f'bootstrap_servers = "{properties.pop("bootstrap.servers")}"',
            f"[contexts.{context}.properties]",
        ]
        lines += [f'"{key}" = "{value}"' for key, value in properties.items()]
    (home / "barnabas").mkdir()
    (home / "barnabas" / "config.toml").write_text("\n".join(lines))


def start_console(home: Path, cluster: SecuredCluster, *words: str) -> Console:
    return Console(*words, environment=environment(home, cluster.server), log=home / "log")


@dataclass(frozen=True, slots=True)
class LoginConsole:
    """`home` has the console's contexts, and its log."""

    console: Console
    cluster: SecuredCluster
    home: Path
    marks: dict[str, str] = field(default_factory=dict)
    """By which the console knows the browsers of users who have logged in: what others do wrong does not slow them."""

    @property
    def log(self) -> str:
        return (self.home / "log").read_text()

    def browser(self) -> Browser:
        return Browser(self)


@dataclass(slots=True)
class Browser:
    """Keeps cookies, and takes each form's secret from its page, as a browser does."""

    shown: LoginConsole
    cookies: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> Answer:
        own = {"Origin": f"http://localhost:{self.shown.console.port}"} if method == "POST" else {}
        own["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        own |= {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.shown.console.ask(method, path, headers={name: value for name, value in own.items() if value}, body=body)
        for line in answer.headers.get_all("set-cookie") or ():
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
        return answer

    def get(self, path: str, *, cluster: str = SECURED) -> Answer:
        return self.ask("GET", f"/c/{cluster}{path}")

    def secret(self, path: str, *, cluster: str = SECURED) -> str:
        found = _CSRF.search(self.get(path, cluster=cluster).text)
        return found[1] if found else ""

    def post(self, path: str, fields: dict[str, str], *, cluster: str = SECURED, **headers: str) -> Answer:
        fields = {"csrf": self.secret(path, cluster=cluster)} | fields
        return self.ask("POST", f"/c/{cluster}{path}", urlencode(fields), **headers)

    def log_in(self, user: tuple[str, str], *, cluster: str = SECURED, **headers: str) -> Answer:
        marks, name = self.shown.marks, f"barnabas_console_{self.shown.console.port}_known"
        self.cookies |= {name: marks[user[0]]} if user[0] in marks else {}
        answer = self.post("/sign-in", {"user": user[0], "password": user[1]}, cluster=cluster, **headers)
        if answer.status == 303 and cluster == SECURED:
            marks[user[0]] = self.cookies[name]
        return answer

    def twin(self) -> Browser:
        """Another with the same cookies."""
        return replace(self, cookies=dict(self.cookies))

    @property
    def session_id(self) -> str:
        return self.cookies.get(f"barnabas_console_{self.shown.console.port}", "")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _value(text: str) -> str:
    """As a value of a .properties file."""
    return text.replace("\\", "\\\\")
