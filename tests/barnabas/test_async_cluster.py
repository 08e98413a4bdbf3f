"""`barnabas.AsyncCluster`: the same as `barnabas.Cluster`, and the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import barnabas

pytestmark = pytest.mark.usefixtures("temporary")

RECEIVE_TIMEOUT_S = 60


async def test_what_was_acknowledged_outlives_a_broker_and_the_whole_cluster() -> None:
    async with barnabas.AsyncCluster(topics={"orders": 1}) as cluster:
        address = cluster.bootstrap_servers
        first, *others = cluster.brokers
        await first.kill()
        async with AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True) as producer:
            await producer.send_and_wait("orders", b"one book")
        assert not first.is_running and all(broker.is_running for broker in others)
        assert repr(cluster) == "<barnabas.AsyncCluster 2 of 3 brokers are running>"

        await cluster.kill()
        with pytest.raises(barnabas.BrokerError, match="no broker of the cluster is running"):
            await cluster.create_topic("later")
        await cluster.start()
        await cluster.create_topic("later", 2)

        assert cluster.bootstrap_servers == address
        assert [broker.node_id for broker in cluster.brokers if broker.is_running] == [1, 2, 3]
        async with AIOKafkaConsumer("orders", bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
            assert (await asyncio.wait_for(consumer.getone(), RECEIVE_TIMEOUT_S)).value == b"one book"
        await cluster.stop()
        assert not any(broker.is_running for broker in cluster.brokers)


async def test_a_leader_is_found_and_after_its_death_the_next() -> None:
    async with barnabas.AsyncCluster() as cluster:
        await cluster.create_topic("orders", 2, replication_factor=3)
        first = await cluster.leader("orders", 1)
        await first.kill()

        second = await cluster.leader("orders", 1)

        assert second is not first and second in cluster.brokers and second.is_running
        with pytest.raises(barnabas.BrokerError, match="the cluster has no partition orders-2"):
            await cluster.leader("orders", 2)


async def test_giving_up_the_wait_for_a_leader_ends_no_broker() -> None:
    async with barnabas.AsyncCluster(2) as cluster:
        await cluster.create_topic("alone", replication_factor=1)
        leader = await cluster.leader("alone")
        await leader.kill()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(cluster.leader("alone"), 0.2)

        assert [broker.is_running for broker in cluster.brokers if broker is not leader] == [True]


async def test_the_loop_goes_on_while_a_cluster_starts() -> None:
    starting = asyncio.create_task(barnabas.AsyncCluster(2).start())
    turns = 0
    while not starting.done():
        turns += 1
        await asyncio.sleep(0)

    await (await starting).close()

    assert turns > 1


async def test_a_cancelled_start_leaves_nothing(temporary: Path) -> None:
    """What `temporary` looks for when the test has ended: processes and their data."""
    cluster = barnabas.AsyncCluster()
    starting = asyncio.create_task(cluster.start())
    while not list(temporary.iterdir()):  # until one of its processes is at work
        await asyncio.sleep(0)

    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting

    assert not any(broker.is_running for broker in cluster.brokers)
    with pytest.raises(barnabas.BrokerError, match="the broker is closed"):
        await cluster.start()


async def test_a_wrong_setting_is_told() -> None:
    with pytest.raises(barnabas.BrokerError, match=r"^Unknown configuration num\.partition; did you mean num\.partitions\?"):
        await barnabas.AsyncCluster(config={"num.partition": 1}).start()
