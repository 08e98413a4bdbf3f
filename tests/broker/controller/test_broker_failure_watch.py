"""Which brokers the active controller has probed, and when a proof fences one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from broker.controller.broker_failure_watch import BrokerFailureWatch
from broker.network.context import ConnectionFacts, ListenerFacts
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from tests.broker.controller.cluster import EMBEDDED, Cluster, registration_request
from tests.broker.metadata.room import CLUSTER_ID, context, open_room

CONTROLLER_LISTENER = ListenerFacts("CONTROLLER")


class Room:
    """Brokers 2 and 3 are registered and unfenced, beside the controller's own; the test proves."""

    def __init__(self, *, is_fast: bool = True) -> None:
        self.cluster = Cluster()
        self.cluster.join(EMBEDDED, 2, 3)
        self.probed: dict[tuple[str, int], Callable[[], None]] = {}
        self.fenced: list[int] = []
        controller = self.cluster.controller
        self.watch = BrokerFailureWatch(
            controller.state,
            controller.heartbeats,
            self.fenced.append,
            node_id=EMBEDDED,
            listener_name="PLAINTEXT",
            prove=self.probed.__setitem__ if is_fast else None,
        )

    def connect(self, node_id: int) -> ConnectionFacts:
        """A heartbeat of the broker came over a new connection."""
        connection = ConnectionFacts(1, CONTROLLER_LISTENER, "peer")
        self.watch.note_connection(node_id, self.cluster.epochs[node_id], connection)
        return connection

    def prove(self, node_id: int) -> None:
        self.probed[address(node_id)]()


def address(node_id: int) -> tuple[str, int]:
    return f"host-{node_id}", 9092


def test_a_broker_whose_heartbeat_connection_ended_is_probed_and_fenced_by_the_proof() -> None:
    room = Room()
    room.connect(2).close()
    assert list(room.probed) == [address(2)] and room.fenced == []

    room.prove(2)

    assert room.fenced == [2]


def test_a_new_controller_probes_every_unfenced_broker_but_its_own() -> None:
    room = Room()
    room.cluster.run(room.cluster.controller.brokers.fence(3))
    room.cluster.join(4)

    room.watch.probe_all()

    assert list(room.probed) == [address(2), address(4)]


def test_a_broker_that_is_heard_of_meanwhile_is_not_fenced() -> None:
    room = Room()
    room.watch.probe_all()
    room.connect(2)
    room.connect(3).close()
    room.connect(3)

    room.prove(2)
    room.prove(3)

    assert room.fenced == []


def test_the_end_of_an_older_connection_says_nothing() -> None:
    room = Room()
    older = room.connect(2)
    room.connect(2)

    older.close()

    assert room.probed == {}


def test_a_connection_that_ended_before_its_request_was_served_counts_as_ended() -> None:
    room = Room()
    connection = ConnectionFacts(1, CONTROLLER_LISTENER, "peer")
    connection.close()

    room.watch.note_connection(2, room.cluster.epochs[2], connection)

    assert list(room.probed) == [address(2)]


def test_a_proof_of_an_older_incarnation_does_not_fence_the_new_one() -> None:
    room = Room()
    room.connect(2).close()
    room.cluster.register(2, incarnation=7)
    room.cluster.heartbeat(2)

    room.prove(2)

    assert room.fenced == []


def test_a_proof_that_comes_after_the_leadership_fences_nobody() -> None:
    room = Room()
    connection = room.connect(2)
    room.watch.probe_all()
    room.watch.end()

    room.prove(2)
    connection.close()

    assert room.fenced == []


def test_a_connection_keeps_nothing_of_a_leadership_that_is_over() -> None:
    room = Room()
    connection = room.connect(2)

    room.watch.end()

    assert connection.on_closed is None


def test_without_fast_fencing_nobody_is_probed() -> None:
    room = Room(is_fast=False)

    room.watch.probe_all()
    room.connect(2).close()

    assert room.probed == {} and room.fenced == []


def test_a_new_incarnation_takes_the_place_of_a_session_whose_connection_ended() -> None:
    room = Room(is_fast=False)

    room.connect(2).close()

    assert room.cluster.register(2, incarnation=7) > 0


def test_a_session_that_goes_on_over_another_connection_keeps_its_place() -> None:
    room = Room(is_fast=False)
    room.connect(2).close()
    room.cluster.heartbeat(2)

    assert room.cluster.controller.heartbeats.has_session(2, room.cluster.epochs[2], room.cluster.now_ms)


async def test_a_heartbeat_whose_connection_has_ended_already_leaves_its_place_to_a_new_incarnation(tmp_path: Path) -> None:
    room = await open_room(tmp_path, is_alone=False)
    epoch = (await room.local.register_broker(registration_request(2, 1, CLUSTER_ID))).broker_epoch
    client = context(2, "CONTROLLER")
    client.connection.close()
    await room.local.broker_heartbeat(BrokerHeartbeatRequest(broker_id=2, broker_epoch=epoch), client)

    response = await room.local.register_broker(registration_request(2, 2, CLUSTER_ID))

    assert response.broker_epoch > epoch
