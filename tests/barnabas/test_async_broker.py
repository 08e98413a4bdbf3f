"""`barnabas.AsyncBroker`: the same, and the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import os

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import barnabas


async def test_produce_restart_and_consume() -> None:
    async with barnabas.AsyncBroker({"num.partitions": 2}, {"orders": 1}) as broker:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait("orders", b"1")
        await broker.kill()
        assert not broker.is_running
        await broker.restart()
        await broker.create_topic("more", 2)

        async with AIOKafkaConsumer("orders", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            assert (await asyncio.wait_for(consumer.getone(), 30)).value == b"1"


async def test_the_loop_goes_on_while_the_broker_starts() -> None:
    starting = asyncio.create_task(barnabas.AsyncBroker().start())
    turns = 0
    while not starting.done():
        turns += 1
        await asyncio.sleep(0)

    await (await starting).close()

    assert turns > 1


async def test_a_cancelled_start_leaves_nothing() -> None:
    broker = barnabas.AsyncBroker()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await broker.start()

    assert not broker.is_running and "is closed" in repr(broker)


async def test_a_wrong_setting_is_told() -> None:
    with pytest.raises(barnabas.BrokerError, match=r"num\.partitions"):
        await barnabas.AsyncBroker({"num.partitions": 0}).start()


async def test_several_start_at_once() -> None:
    brokers = await asyncio.gather(*(barnabas.AsyncBroker(topics={"a": 1}).start() for _ in range(3)))

    assert len({broker.port for broker in brokers}) == 3
    await asyncio.gather(*(broker.close() for broker in brokers))
    for broker in brokers:
        with pytest.raises(ProcessLookupError):
            os.kill(broker.pid, 0)
