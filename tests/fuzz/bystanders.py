"""What else happens beside the inputs: slow senders, half-open connections, floods of connections, bombs, and talkers of other protocols
on the ports, one after another and again from the beginning."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping

from protocol.apis import ListenerKind
from protocol.compression import Compression, compress
from protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from protocol.messages.push_telemetry import PushTelemetryRequest
from tests.attack import connection_attacks, memory_attacks, stranger_attacks
from tests.attack.attacker import Attacker
from tests.attack.campaign import Door
from tests.broker.telemetry.pushed import double_point, gauge, int_point, metrics_data, total
from tests.fuzz.target import FLOODER_ADDRESS, FuzzedBroker

SCALE = 0.02
PAUSE_S = 0.5
ATTACK_MAX_S = 20.0
BOMB_BYTES = 40_000_000
PUSHES = 60
EVERY_INSTANCE = bytes(16)  # asks for an id


def push_spoiled_metrics(attacker: Attacker) -> None:
    """Pushed telemetry: bombs of every codec, and metrics whose bytes were changed; each by a client of its own."""
    source = attacker.source
    points = [int_point(7, a="b"), double_point(1.5), double_point(float("nan"), **{"x" * 100: "y" * 100})]
    metrics = (gauge("org.apache.kafka.gauge", *points), total("org.apache.kafka.total", *points), gauge("g" * 1000, *points * 50))
    plain = metrics_data(*metrics)
    bombs = [(codec, compress(codec, bytes(BOMB_BYTES))) for codec in Compression if codec is not Compression.NONE]
    with attacker.client() as client:
        for number in range(PUSHES):
            told = client.request(GetTelemetrySubscriptionsRequest(client_instance_id=EVERY_INSTANCE), 0)
            if number % 6 == 0:
                codec, pushed = bombs[number // 6 % len(bombs)]
            else:
                codec = source.choice(list(Compression))
                pushed = compress(codec, _changed(plain, source))
                if source.random() < 0.3:
                    pushed = _changed(pushed, source)
            ids = {"client_instance_id": told.client_instance_id, "subscription_id": told.subscription_id}
            answer = client.request(PushTelemetryRequest(**ids, compression_type=codec, metrics=pushed), 0)
            attacker.tally.answered += 1
            if number % 6 == 0 and not answer.error_code:
                attacker.failures.append(f"metrics that are a bomb of {codec.name.lower()} were taken")


def _changed(data: bytes, source: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(source.randint(1, 5)):
        changed[source.randrange(len(changed))] = source.getrandbits(8)
    return bytes(changed if source.random() < 0.7 else changed[: source.randrange(len(changed))])


CLIENT, CONTROLLER = ListenerKind.CLIENT, ListenerKind.CONTROLLER
BYSTANDERS: tuple[tuple[Callable[[Attacker], None], tuple[ListenerKind, ...]], ...] = (
    (connection_attacks.speak_other_protocols, (CLIENT, CONTROLLER)),
    (connection_attacks.dribble, (CLIENT,)),
    (connection_attacks.hold_half_open, (CLIENT, CONTROLLER)),
    (connection_attacks.reset_connections, (CLIENT, CONTROLLER)),
    (connection_attacks.flood_connections, (CLIENT, CONTROLLER)),
    (memory_attacks.send_bombs, (CLIENT,)),
    (push_spoiled_metrics, (CLIENT,)),
    (memory_attacks.send_unfinished_frames, (CLIENT, CONTROLLER)),
)
BYSTANDERS_OF_STRANGERS: tuple[tuple[Callable[[Attacker], None], tuple[ListenerKind, ...]], ...] = (
    (connection_attacks.speak_other_protocols, (CLIENT, CONTROLLER)),
    (connection_attacks.reset_connections, (CLIENT, CONTROLLER)),
    (memory_attacks.send_unfinished_frames, (CLIENT, CONTROLLER)),
    (stranger_attacks.storm_with_logins, (CLIENT,)),
    (stranger_attacks.mutate_logins, (CLIENT,)),
    (stranger_attacks.flood_with_tokens, (CLIENT,)),
    (stranger_attacks.cut_records, (CLIENT,)),
    (stranger_attacks.send_huge_frames, (CLIENT,)),
    (stranger_attacks.hold_half_handshakes, (CLIENT,)),
)
ADDRESSES: Mapping[Callable[[Attacker], None], str] = {connection_attacks.flood_connections: FLOODER_ADDRESS}


class Bystanders(threading.Thread):
    """Goes through all of them again and again until it is told to stop, but so many times at least; with 0 not at all."""

    def __init__(self, broker: FuzzedBroker, seed: object, *, rounds_min: int = 1, door: Door = Door.OPEN) -> None:
        super().__init__(daemon=True)
        self._door = door
        self._bystanders = BYSTANDERS_OF_STRANGERS if door is Door.STRANGERS else BYSTANDERS
        self._rounds_min = rounds_min
        self._broker = broker
        self._seed = seed
        self._must_stop = threading.Event()
        self.failures: list[str] = []
        self.rounds_count = 0

    def run(self) -> None:
        for number in itertools.count() if self._rounds_min else ():
            for attack, listeners in self._bystanders:
                for listener in listeners:
                    if self._must_stop.is_set() and number >= self._rounds_min:
                        return
                    self._strike(attack, listener, number)
                    self._must_stop.wait(PAUSE_S)  # which is no pause once it is told to stop
            self.rounds_count += 1

    def stop(self) -> None:
        """Returns when the attack that runs, and the last of the rounds there must be, is over."""
        self._must_stop.set()
        self.join()

    def _strike(self, attack: Callable[[Attacker], None], listener: ListenerKind, number: int) -> None:
        attacker = Attacker(
            self._broker,
            random.Random(f"{self._seed} {attack.__name__} {listener.value} {number}"),
            SCALE,
            deadline_s=time.monotonic() + ATTACK_MAX_S,
            ways=self._broker.ways(listener, self._door),
            address=ADDRESSES.get(attack, "127.0.0.9"),
        )
        try:
            attack(attacker)
        except (OSError, EOFError, AssertionError) as error:
            attacker.failures.append(f"ended early: {error!r:.200}")
        self.failures += [f"{attack.__name__} on {listener.value}: {failure}" for failure in attacker.failures]
