"""Reads a topic with two members of a group of aiokafka, the second of which comes later and leaves again.

Arguments: bootstrap, topic, number of records. The last line of the output is a JSON object: `seen` has the
values in each act, `assigned` how many partitions each member had when both were there.
"""

import asyncio
import json
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

bootstrap, topic = sys.argv[1:3]
count = int(sys.argv[3])


def member() -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=f"{topic}-readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=200,
    )


async def write(producer: AIOKafkaProducer, act: int) -> None:
    sent = [
        await producer.send(topic, f"{act}-{number}".encode(), partition=number % 4)
        for number in range(count)
    ]
    await asyncio.gather(*sent)


async def read(*members: AIOKafkaConsumer, seen: set[str]) -> None:
    while len(seen) < count:
        for each in members:
            found = await each.getmany(timeout_ms=100)
            # A rebalance lets members read again what they have not committed.
            seen.update(row.value.decode() for rows in found.values() for row in rows)
    for each in members:
        await each.commit()


async def main() -> None:
    seen: list[set[str]] = [set(), set(), set()]
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, compression_type="gzip"
    ) as producer:
        first, second = member(), member()
        await first.start()
        await write(producer, 0)
        await read(first, seen=seen[0])
        await second.start()
        while not (first.assignment() and second.assignment()):
            await first.getmany(timeout_ms=50)
            await second.getmany(timeout_ms=50)
        assigned = [len(first.assignment()), len(second.assignment())]
        await write(producer, 1)
        await read(first, second, seen=seen[1])
        await second.stop()
        await write(producer, 2)
        await read(first, seen=seen[2])
        await first.stop()
    print(json.dumps({"seen": list(map(sorted, seen)), "assigned": assigned}))


asyncio.run(main())
