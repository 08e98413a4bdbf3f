"""What a broker replicates with: nothing of it while it is alone; with others, real connections and real proposals."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.controller.channel import ControllerChannel
from broker.platform import system_platform
from broker.replication.isr.isr_state import IsrMember, IsrProposal
from broker.server.inter_broker import InterBroker
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from protocol.messages.stored.metadata_records import BrokerEndpoint, RegisterBrokerRecord
from tests.broker.network.harness import run, serving
from tests.broker.replication.cluster import Cluster, stored
from tests.broker.replication.world import World
from tests.support.doubles import stands_for

CHECKOUT = Path(__file__).resolve().parents[3]
LEADER = 2
TOPIC_ID = b"a".rjust(16, b"\1")


@stands_for(ControllerChannel)
class Channel:
    """Commits every proposal as it is."""

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        (topic,) = request.topics
        (asked,) = topic.partitions
        isr = [member.broker_id for member in asked.new_isr_with_epochs]
        answer = AlterPartitionResponsePartitionData(partition_index=asked.partition_index, isr=isr, partition_epoch=request.broker_epoch)
        return AlterPartitionResponse(topics=[AlterPartitionResponseTopicData(topic_id=topic.topic_id, partitions=[answer])])


def test_a_broker_alone_does_not_even_import_it() -> None:
    program = (
        "import sys, broker.server.server; print([name for name in ("
        "'broker.replication.fetcher.manager', 'broker.replication.fetcher.leader_fetcher', 'broker.cluster.peer_connections', "
        "'broker.replication.isr.isr_changes', 'broker.controller.partition_control', 'broker.network.client') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, timeout=30, check=True)

    assert done.stdout == "[]\n"


def test_a_follower_fetches_over_a_real_connection_and_lets_go_of_it(tmp_path: Path) -> None:
    leaders = Cluster(tmp_path / "leaders")
    leaders.create_topic("a", replicas=(1, LEADER), leader=LEADER)
    leaders.kill(1)  # broker 1 is the one below
    leader = leaders.nodes[LEADER]
    follower = World(tmp_path / "follower")

    async def test() -> None:
        platform = system_platform(asyncio.get_running_loop())
        inter_broker = InterBroker(follower.config, follower.metadata, Channel(), platform)  # type: ignore[arg-type]
        inter_broker.replica_manager = follower.replica_manager
        async with serving(leader.apis.handle) as harness:
            endpoint = BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=harness.listener.port, security_protocol=0)
            follower.metadata.apply_committed([RegisterBrokerRecord(broker_id=LEADER, end_points=[endpoint], fenced=False)])
            follower.register_broker(1, epoch=leader.metadata.brokers[1].epoch)
            follower.create_topic("a", replicas=(1, LEADER), leader=LEADER, topic_id=TOPIC_ID)
            partition = follower.partition("a")
            inter_broker.fetchers.add(partition, follower.fetchers.fetched[partition])

            answers = leaders.produce("a", "x", node=leader)
            await wait_until(lambda: bool(answers))
            assert answers[0].error_code is ErrorCode.NONE
            assert stored(partition.log) == stored(leader.log()) == [(0, 0, "x")]
            assert len(harness.registry) == 1

            inter_broker.fetchers.remove(partition)
            await wait_until(lambda: not len(harness.registry))
            await inter_broker.stop()

    run(test)


def test_a_proposal_reaches_the_controller_and_its_answer_the_partition(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.register_broker(1, epoch=7)
    answers: list[AlterPartitionResponsePartitionData] = []

    def take(answer: AlterPartitionResponsePartitionData, now_ms: int) -> bool:
        answers.append(answer)
        return False

    async def test() -> None:
        platform = system_platform(asyncio.get_running_loop())
        inter_broker = InterBroker(world.config, world.metadata, Channel(), platform)  # type: ignore[arg-type]
        inter_broker.alter_isr(IsrProposal(TOPIC_ID, 0, 1, 1, (IsrMember(1, 7),)), take)
        await wait_until(lambda: bool(answers))
        await inter_broker.stop()

    run(test)

    assert [(answer.isr, answer.partition_epoch) for answer in answers] == [([1], 7)]


async def wait_until(is_reached: Callable[[], Any]) -> None:
    while not is_reached():
        await asyncio.sleep(0)
