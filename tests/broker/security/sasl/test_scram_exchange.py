"""ScramServer and ScramClient: Kafka's ScramSaslServerTest, both against each other, and what does not fit."""

from __future__ import annotations

import base64

import pytest
from kafka.net.sasl.scram import ScramClient as KafkaPythonClient

from broker.security.sasl.scram_server import ScramServer, TokenCredential
from protocol.sasl import scram
from protocol.sasl.exchange import Identity, SaslAuthenticationError, SaslError
from protocol.sasl.scram import ScramCredential, ScramMechanism
from protocol.sasl.scram_client import SaltedPassword, ScramClient

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SALT = b"1k6dzx8xwvhs7c6e6sm8i4dvn8"


class Store:
    """Users and tokens in memory: what the applied metadata is for a broker."""

    def __init__(self) -> None:
        self.users: dict[tuple[ScramMechanism, str], ScramCredential] = {}
        self.tokens: dict[tuple[ScramMechanism, str], TokenCredential] = {}

    def add_user(self, mechanism: ScramMechanism, name: str, password: str, iterations: int = 4096) -> None:
        self.users[mechanism, name] = make_credential(mechanism, password, iterations)

    def find_user(self, mechanism: ScramMechanism, username: str) -> ScramCredential | None:
        return self.users.get((mechanism, username))

    def find_token(self, mechanism: ScramMechanism, token_id: str) -> TokenCredential | None:
        return self.tokens.get((mechanism, token_id))


def make_credential(mechanism: ScramMechanism, password: str, iterations: int = 4096) -> ScramCredential:
    return scram.credential_of(mechanism, scram.salted_password(mechanism, password, SALT, iterations), SALT, iterations)


@pytest.fixture
def store() -> Store:
    store = Store()
    for mechanism in ScramMechanism:
        store.add_user(mechanism, "userA", "passwordA")
        store.add_user(mechanism, "userB", "passwordB", iterations=8192)
        store.add_user(mechanism, "a,b=c", "password=,")
    return store


def make_server(store: Store, mechanism: ScramMechanism = SHA_256) -> ScramServer:
    return ScramServer(mechanism, store, "server-nonce", b"secret of the cluster")


def first_message(username: str, authorization_id: str = "") -> bytes:
    authzid = f"a={authorization_id}" if authorization_id else ""
    return f"n,{authzid},n={username},r=client-nonce".encode()


def final_message(nonce: str, channel_binding: bytes = b"n,,") -> bytes:
    return f"c={base64.b64encode(channel_binding).decode()},r={nonce},p={base64.b64encode(bytes(32)).decode()}".encode()


def talk(server: ScramServer, client: ScramClient) -> None:
    challenge = b""
    while (response := client.evaluate(challenge)) is not None:
        challenge = server.evaluate(response)


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize(("name", "password"), [("userA", "passwordA"), ("userB", "passwordB"), ("a,b=c", "password=,")])
def test_client_with_the_password_and_server_trust_each_other(store: Store, mechanism: ScramMechanism, name: str, password: str) -> None:
    server, client = make_server(store, mechanism), ScramClient(mechanism, name, password, "client-nonce")
    assert server.identity is None

    talk(server, client)

    assert client.is_complete
    assert server.identity == Identity(name)


def test_rounds_are_computed_once_until_the_server_asks_for_others(store: Store) -> None:
    salted = SaltedPassword(SHA_256, "passwordA")

    def may_block() -> list[bool]:
        """Of each step of one exchange, which lets the client in."""
        server, client = make_server(store), ScramClient(SHA_256, "userA", salted, "client-nonce")
        blocks, challenge = [client.may_block(b"")], b""
        while (response := client.evaluate(challenge)) is not None:
            challenge = server.evaluate(response)
            blocks.append(client.may_block(challenge))
        assert client.is_complete
        return blocks

    assert may_block() == [False, True, False]
    assert may_block() == [False, False, False]
    store.add_user(SHA_256, "userA", "passwordA", iterations=8192)
    assert may_block() == [False, True, False]


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_client_of_kafka_python_is_let_in(store: Store, mechanism: ScramMechanism) -> None:
    """A client that was not written here, and checks the server's signature."""
    server, client = make_server(store, mechanism), KafkaPythonClient("userB", "passwordB", mechanism.mechanism_name)

    client.process_server_first_message(server.evaluate(client.first_message()))
    client.process_server_final_message(server.evaluate(client.final_message()))

    assert server.identity == Identity("userB")


def test_wrong_password_is_refused_with_the_proof(store: Store) -> None:
    server, client = make_server(store), ScramClient(SHA_256, "userA", "passwordB", "client-nonce")
    proof = client.evaluate(server.evaluate(client.evaluate(b"") or b""))

    with pytest.raises(SaslError, match="Invalid client credentials"):
        server.evaluate(proof or b"")

    assert server.identity is None


@pytest.mark.parametrize("is_changed", [False, True])
def test_password_that_is_withdrawn_during_the_exchange_lets_nobody_in(store: Store, is_changed: bool) -> None:
    """Apache Kafka looks the credential up at the first message, and lets in who sends the proof much later."""
    server, client = make_server(store), ScramClient(SHA_256, "userA", "passwordA", "client-nonce")
    proof = client.evaluate(server.evaluate(client.evaluate(b"") or b""))
    del store.users[SHA_256, "userA"]
    if is_changed:
        store.add_user(SHA_256, "userA", "another password")

    with pytest.raises(SaslError, match="Invalid"):
        server.evaluate(proof or b"")

    assert server.identity is None


@pytest.mark.parametrize("password", ["passwordA", ""])
def test_unknown_user_is_refused_at_the_step_of_a_wrong_password(store: Store, password: str) -> None:
    """Apache Kafka refuses him one step earlier, which tells who exists."""
    answers = []
    for _ in range(2):
        server, client = make_server(store), ScramClient(SHA_256, "nobody", password, "client-nonce")
        challenge = server.evaluate(client.evaluate(b"") or b"")
        answers.append(challenge)
        with pytest.raises(SaslError) as caught:
            server.evaluate(client.evaluate(challenge) or b"")
        assert not isinstance(caught.value, SaslAuthenticationError)  # the client gets the words of a wrong password

    assert answers[0] == answers[1]
    assert answers[0].endswith(b",i=4096")


def test_user_of_the_other_mechanism_is_unknown(store: Store) -> None:
    store.add_user(SHA_256, "only-256", "secret")
    server, client = make_server(store, SHA_512), ScramClient(SHA_512, "only-256", "secret", "client-nonce")

    with pytest.raises(SaslError, match="none for this mechanism"):
        talk(server, client)


def test_delegation_token_logs_its_owner_in(store: Store) -> None:
    store.tokens[SHA_256, "token-id"] = TokenCredential("owner", make_credential(SHA_256, "token-hmac"), 1_700_000_000_000)
    server = make_server(store)

    talk(server, ScramClient(SHA_256, "token-id", "token-hmac", "client-nonce", is_token=True))

    assert server.identity == Identity("owner", is_token_authenticated=True, credential_end_ms=1_700_000_000_000)


def test_users_and_tokens_are_not_each_other(store: Store) -> None:
    store.tokens[SHA_256, "token-id"] = TokenCredential("owner", make_credential(SHA_256, "token-hmac"), 1)

    with pytest.raises(SaslError):
        talk(make_server(store), ScramClient(SHA_256, "token-id", "token-hmac", "client-nonce"))
    with pytest.raises(SaslError, match="invalid token id"):
        talk(make_server(store), ScramClient(SHA_256, "userA", "passwordA", "client-nonce", is_token=True))


def test_authorization_id_may_be_the_user_s_name(store: Store) -> None:
    assert make_server(store).evaluate(first_message("userA", "userA")).startswith(b"r=client-nonceserver-nonce,s=")


@pytest.mark.parametrize("username", ["userA", "nobody"])
def test_another_authorization_id_is_refused(store: Store, username: str) -> None:
    """CVE-2017-12610."""
    with pytest.raises(SaslAuthenticationError, match="different from username"):
        make_server(store).evaluate(first_message(username, "userB"))


@pytest.mark.parametrize(
    "nonce", ["client-nonce", "server-nonce", "client-nonceclient-nonceserver-nonce", "xserver-nonce", "client-nonceserver-nonc", "other"]
)
def test_altered_nonce_is_refused(store: Store, nonce: str) -> None:
    """CVE-2024-56128, and Kafka's validateFailedNonceExchangeWithPrependingClientNonce."""
    server = make_server(store)
    server.evaluate(first_message("userA"))

    with pytest.raises(SaslError, match=r"Invalid client nonce in the final client message\."):
        server.evaluate(final_message(nonce))


@pytest.mark.parametrize("channel_binding", [b"y,,", b"p=tls-unique,,", b"", b"n,a=userA,"])
def test_altered_channel_binding_is_refused(store: Store, channel_binding: bytes) -> None:
    server = make_server(store)
    server.evaluate(first_message("userA"))

    with pytest.raises(SaslError, match="channel binding"):
        server.evaluate(final_message("client-nonceserver-nonce", channel_binding))


def test_failed_or_complete_exchange_takes_no_token(store: Store) -> None:
    failed, complete = make_server(store), make_server(store)
    with pytest.raises(SaslError):
        failed.evaluate(b"junk")
    talk(complete, ScramClient(SHA_256, "userA", "passwordA", "client-nonce"))

    for server in (failed, complete):
        with pytest.raises(SaslError, match="Unexpected token"):
            server.evaluate(first_message("userA"))
        assert server.identity is None


def test_client_refuses_a_server_without_the_credential(store: Store) -> None:
    server, client = make_server(store), ScramClient(SHA_256, "userA", "passwordA", "client-nonce")
    client.evaluate(server.evaluate(client.evaluate(b"") or b""))

    with pytest.raises(SaslError, match="Invalid server signature"):
        client.evaluate(b"v=" + base64.b64encode(bytes(32)))

    assert not client.is_complete


@pytest.mark.parametrize("nonce", ["client-nonce", "other-nonceserver", "xclient-nonceserver"])
def test_client_refuses_a_nonce_that_does_not_extend_its_own(nonce: str) -> None:
    client = ScramClient(SHA_256, "userA", "passwordA", "client-nonce")
    client.evaluate(b"")

    with pytest.raises(SaslError, match="Invalid server nonce"):
        client.evaluate(f"r={nonce},s=AAEC,i=4096".encode())


@pytest.mark.parametrize("iterations", [1, 4095, 100_001, 999_999_999])
def test_client_refuses_too_few_and_too_many_iterations(iterations: int) -> None:
    """Too few make the password guessable; too many stop the client (CVE-2026-10143)."""
    client = ScramClient(SHA_256, "userA", "passwordA", "client-nonce")
    client.evaluate(b"")

    with pytest.raises(SaslError, match="iterations"):
        client.evaluate(f"r=client-nonceserver,s=AAEC,i={iterations}".encode())
