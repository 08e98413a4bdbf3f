"""What is said of the brokers without Spark: before a job starts, and while they are away."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator

import pytest

from pipeline.brokers import MISSES_UNTIL_AWAY, REMINDER_INTERVAL_S, AwayNotice, BrokerError, BrokerWatch, probe, require_topics
from pipeline.options import joined_servers
from tests.clients.topics import create_topic
from tests.support.process import ServerProcess, free_port

TIMEOUT_S = 60.0


@pytest.fixture
def closing_port() -> Iterator[int]:
    """A listener that takes connections and closes them at the first byte, as one that expects TLS does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(64)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(TIMEOUT_S)


def test_broker_that_has_the_topics_is_taken(server: ServerProcess, topic_name: str) -> None:
    create_topic(server, topic_name)

    require_topics(f"127.0.0.1:{free_port()},{server.bootstrap}", {}, [topic_name])


def test_missing_topic_is_named(server: ServerProcess, topic_name: str) -> None:
    create_topic(server, topic_name)

    with pytest.raises(BrokerError, match=f"^topic {topic_name}-x does not exist at {server.bootstrap}$"):
        require_topics(server.bootstrap, {}, [topic_name, f"{topic_name}-x"])
    with pytest.raises(BrokerError, match="does not exist"):
        require_topics(server.bootstrap, {}, [f"{topic_name}-x"])  # asking has not created it


def test_nobody_there_is_said_at_once() -> None:
    nobody = f"127.0.0.1:{free_port()}"

    with pytest.raises(BrokerError, match=f"^no broker at {nobody}: connection refused$"):
        require_topics(nobody, {}, ["t"])


def test_listener_that_does_not_speak_plaintext_is_named_so(closing_port: int) -> None:
    assert "one for TLS" in (probe([("127.0.0.1", closing_port)], {}) or "")
    assert probe([("127.0.0.1", closing_port)], {"security.protocol": "SSL"}) is None


def test_brokers_that_were_learned_follow_the_bootstrap_servers_once_each() -> None:
    assert joined_servers("a:1, [::1]:2", [("a", 1), ("b", 3), ("::2", 4)]) == "a:1,[::1]:2,b:3,[::2]:4"


def test_away_is_said_once_then_each_minute_and_back_once() -> None:
    lines: list[str] = []
    notice = AwayNotice("b:9092", lines.append)

    notice.observe("connection refused", 100)
    notice.observe("connection refused", 102)
    notice.observe("connection refused", 104)
    notice.observe("connection refused", 102 + REMINDER_INTERVAL_S)
    notice.observe(None, 170)

    assert lines == [
        "no broker at b:9092: connection refused; waiting for it",
        "still no broker at b:9092 after 1 min 2 s: connection refused",
        "b:9092 is back after 1 min 10 s",
    ]


def test_away_counts_the_brokers_that_the_cluster_named() -> None:
    lines: list[str] = []
    notice = AwayNotice("b:9092", lines.append)

    for moment in range(2):
        notice.observe("connection refused", moment, learned=2)

    assert lines == ["no broker at b:9092 or the 2 others that its cluster named: connection refused; waiting for it"]
    assert notice.reason == "no broker at b:9092 or the 2 others that its cluster named: connection refused"


def test_a_single_miss_is_no_outage() -> None:
    lines: list[str] = []
    notice = AwayNotice("b:9092", lines.append)

    for moment, why in enumerate(["connection refused", None, "connection refused", None]):
        notice.observe(why, moment)

    assert (lines, notice.outages) == ([], 0)


def test_watch_learns_a_broker_that_came_later_and_needs_it_alone(own_server: ServerProcess) -> None:
    """The bootstrap server goes, the broker that was learned stays, then goes too."""
    host, _, port = own_server.bootstrap.rpartition(":")
    away, alone = threading.Event(), threading.Event()
    answers = iter([[], [(host, int(port))]])
    asked_in_vain = itertools.count(1)
    first = socket.create_server(("127.0.0.1", 0))
    bootstrap = f"127.0.0.1:{first.getsockname()[1]}"

    def learn() -> list[tuple[str, int]]:
        """Called after each probe that a broker answers."""
        for answer in answers:
            return answer
        first.close()
        if next(asked_in_vain) > 2 * MISSES_UNTIL_AWAY:
            alone.set()
        raise BrokerError("no answer")

    # Of an encrypted listener only the connection is asked for, which one without a thread behind it takes.
    watch = BrokerWatch(bootstrap, {"security.protocol": "SSL"}, lambda _: away.set(), learn=learn, interval_s=0.05, learn_interval_s=0)
    try:
        assert alone.wait(TIMEOUT_S) and not away.is_set()
        assert watch.servers == f"{bootstrap},{own_server.bootstrap}"
        own_server.kill()
        assert away.wait(TIMEOUT_S) and watch.is_away
    finally:
        watch.close()
        first.close()


def test_watch_notices_a_broker_that_goes_and_comes(own_server: ServerProcess) -> None:
    came = {"away": threading.Event(), "back": threading.Event()}
    watch = BrokerWatch(own_server.bootstrap, {}, lambda line: came["back" if "is back" in line else "away"].set(), interval_s=0.05)
    try:
        own_server.kill()
        assert came["away"].wait(TIMEOUT_S) and watch.is_away
        own_server.start()
        assert came["back"].wait(TIMEOUT_S) and not watch.is_away
    finally:
        watch.close()

    assert watch.outages == 1
