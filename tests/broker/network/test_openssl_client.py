"""What OpenSSL's own client can do and Python's cannot: renegotiation, early data, KeyUpdate, any name in SNI."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.broker.network.harness import Harness, framed, run, serving
from tests.broker.network.test_tls_transport import authenticator, echo, make_secure
from tests.broker.security.tls import stores
from tests.support.requirements import needs

pytestmark = needs(None if shutil.which("openssl") else "missing: openssl's command")

TIMEOUT_S = 20.0
TLS_1_2, TLS_1_3 = ("-tls1_2",), ("-tls1_3",)


class Client:
    """`openssl s_client`, whose standard input and output are the connection's once the handshake is done."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def connect(cls, harness: Harness, *arguments: str) -> Client:
        process = await asyncio.create_subprocess_exec(
            "openssl", "s_client", "-connect", f"127.0.0.1:{harness.listener.port}", "-CAfile", stores.path("ca.pem"), *arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        return cls(process)

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)

    async def read_until(self, text: bytes) -> bytes:
        """All up to the text, which has to come."""
        assert self._process.stdout is not None
        return await asyncio.wait_for(self._process.stdout.readuntil(text), TIMEOUT_S)

    async def end(self) -> bytes:
        """What it says until it ends."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        said = await asyncio.wait_for(self._process.stdout.read(), TIMEOUT_S)
        await self._process.wait()
        return said


def test_a_client_may_not_negotiate_again() -> None:
    """Each time would cost the broker a handshake; TLS 1.3 has no such thing."""

    async def test() -> None:
        async with serving(echo, make_secure=make_secure(), authenticator=authenticator()) as harness:
            client = await Client.connect(harness, *TLS_1_2)
            await client.read_until(b"Verify return code: 0 (ok)")
            client.write(b"R\n")

            assert b"no renegotiation" in await client.end()

    run(test)


def test_keys_may_be_updated_and_nothing_is_lost() -> None:
    """KAFKA-13418: a KeyUpdate that asked for one in return stopped Kafka's connection."""

    async def test() -> None:
        async with serving(echo, make_secure=make_secure(), authenticator=authenticator()) as harness:
            client = await Client.connect(harness, *TLS_1_3)
            await client.read_until(b"Verify return code: 0 (ok)")
            for number in range(5):
                client.write(b"K\n")
                await client.read_until(b"KEYUPDATE\n")
                client.write(b"\0\0\0\x07again%d\n" % number)  # s_client sends a line as it is; the frame's size counts its end
                assert (await client.read_until(b"again%d" % number)).endswith(b"\0\0\0\x07again%d" % number)
            await client.end()

    run(test)


def test_early_data_is_not_taken(tmp_path: Path) -> None:
    """It could be sent again by somebody else. The ticket that the broker gives says that it takes none."""
    session, data = tmp_path / "session", tmp_path / "data"
    data.write_bytes(framed(b"early"))

    async def test() -> None:
        async with serving(echo, make_secure=make_secure(), authenticator=authenticator()) as harness:
            client = await Client.connect(harness, *TLS_1_3, "-sess_out", str(session))
            client.write(framed(b"ticket\n"))
            said = await client.read_until(b"ticket\n")  # the ticket has come before the answer
            said += await client.end()
            assert b"Max Early Data: 0" in said

            client = await Client.connect(harness, *TLS_1_3, "-sess_in", str(session), "-early_data", str(data))

            assert b"Early data was not sent" in await client.read_until(b"Verify return code: 0 (ok)")
            await client.end()

    run(test)


@pytest.mark.parametrize("name", ["another.example.org", "x" * 255, "..", "localhost\n"])
def test_a_wrong_name_in_sni_changes_nothing(name: str) -> None:
    """There is one certificate for a listener; who wants another name refuses it himself."""

    async def test() -> None:
        async with serving(echo, make_secure=make_secure(), authenticator=authenticator()) as harness:
            client = await Client.connect(harness, "-servername", name, "-verify_hostname", "localhost")
            said = await client.read_until(b"Verify return code: 0 (ok)")
            client.write(framed(b"hello\n"))

            assert b"CN = localhost" in said
            await client.read_until(b"hello")
            await client.end()

    run(test)
