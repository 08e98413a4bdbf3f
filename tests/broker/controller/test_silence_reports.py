"""When the active controller fences a broker that others find silent: all that ask it, two at least, and the controller itself."""

from __future__ import annotations

from collections.abc import Callable

from broker.controller.silence_reports import BACKOFF_MS, SilenceReports
from broker.metadata.features import SILENCE_FEATURE
from protocol.messages.broker_registration import Feature
from protocol.messages.stored.metadata_records import RegisterControllerRecord
from tests.broker.controller.cluster import EMBEDDED, Cluster, registration_request
from tests.support.clock import ManualClock


class Room:
    """Brokers that are registered and unfenced, the controller's own first; the test says what the controller's question comes to."""

    def __init__(self, *others: int, kafka: tuple[int, ...] = ()) -> None:
        self.cluster = Cluster()
        self.clock = ManualClock()
        for node_id in (EMBEDDED, *others):
            features = registration_request(node_id, 1).features
            if node_id not in kafka:
                features = [*features, Feature(name=SILENCE_FEATURE, min_supported_version=0, max_supported_version=1)]
            self.cluster.register(node_id, features=features)
            self.cluster.heartbeat(node_id)
        self.asked: list[tuple[tuple[str, int], Callable[[bool], None]]] = []
        self.fenced: list[int] = []
        controller = self.cluster.controller
        self.reports = SilenceReports(
            controller.state,
            controller.heartbeats,
            self.fenced.append,
            lambda address, on_end: self.asked.append((address, on_end)),
            self.clock,
            node_id=EMBEDDED,
            listener_name="PLAINTEXT",
        )

    def end_question(self, *, is_silent: bool) -> None:
        self.asked.pop()[1](is_silent)


def test_a_broker_that_answers_neither_the_others_nor_the_controller_is_fenced() -> None:
    room = Room(2, 3)
    room.reports.note(EMBEDDED, [3])
    room.reports.note(2, [3])
    assert [address for address, _ in room.asked] == [("host-3", 9092)] and room.fenced == []

    room.end_question(is_silent=True)

    assert room.fenced == [3]


def test_one_observer_is_not_enough() -> None:
    """A single link is broken."""
    room = Room(2, 3)

    room.reports.note(2, [3])
    room.reports.note(EMBEDDED, [])

    assert room.asked == []


def test_of_two_brokers_none_can_be_found_silent() -> None:
    room = Room(2)

    room.reports.note(EMBEDDED, [2])

    assert room.asked == []


def test_everyone_that_asks_has_to_be_without_an_answer() -> None:
    room = Room(2, 3, 4, 5)
    for reporter_id in (2, 3):
        room.reports.note(reporter_id, [4])
    assert room.asked == []

    room.reports.note(5, [4])  # which does not ask it
    assert room.asked == []
    room.reports.note(EMBEDDED, [4])

    assert [address for address, _ in room.asked] == [("host-4", 9092)]


def test_an_answer_to_the_controller_ends_the_accusation_until_the_next_report() -> None:
    room = Room(2, 3)
    for reporter_id in (EMBEDDED, 2):
        room.reports.note(reporter_id, [3])
    room.end_question(is_silent=False)
    assert (room.fenced, room.asked) == ([], [])

    room.reports.note(2, [3])

    assert len(room.asked) == 1


def test_a_heartbeat_or_a_report_that_is_taken_back_meanwhile_ends_it_too() -> None:
    room = Room(2, 3)
    for reporter_id in (EMBEDDED, 2):
        room.reports.note(reporter_id, [3])
    room.cluster.now_ms += 1
    room.cluster.heartbeat(3)
    room.end_question(is_silent=True)
    assert room.fenced == []

    room.reports.note(2, [3])
    room.reports.note(2, [])
    room.end_question(is_silent=True)

    assert room.fenced == []


def test_a_node_of_kafka_turns_it_off() -> None:
    room = Room(2, 3, 4, kafka=(4,))
    for reporter_id in (EMBEDDED, 2, 4):
        room.reports.note(reporter_id, [3])
    assert room.asked == []

    room.cluster.run(room.cluster.controller.brokers.fence(4))  # it takes no part any more
    room.reports.note(2, [3])

    assert len(room.asked) == 1


def test_a_controller_of_kafka_turns_it_off() -> None:
    room = Room(2, 3)
    room.cluster.append([RegisterControllerRecord(controller_id=9, incarnation_id=bytes(16))])

    for reporter_id in (EMBEDDED, 2):
        room.reports.note(reporter_id, [3])

    assert room.asked == []


def test_a_broker_that_came_back_is_not_fenced_for_silence_again_for_a_while() -> None:
    room = Room(2, 3)
    for reporter_id in (EMBEDDED, 2):
        room.reports.note(reporter_id, [3])
    room.end_question(is_silent=True)
    room.reports.note(2, [3])
    assert room.asked == []

    room.clock.advance(BACKOFF_MS)
    room.reports.note(2, [3])

    assert len(room.asked) == 1


def test_an_answer_that_comes_after_the_leadership_fences_nobody() -> None:
    room = Room(2, 3)
    for reporter_id in (EMBEDDED, 2):
        room.reports.note(reporter_id, [3])

    room.reports.end()
    room.end_question(is_silent=True)

    assert room.fenced == []
