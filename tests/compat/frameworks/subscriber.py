# mypy: disable-error-code="untyped-decorator"
"""Answers each order with a receipt, by FastStream. Arguments: bootstrap, topics."""

import asyncio
import sys

from faststream import FastStream
from faststream.kafka import KafkaBroker
from pydantic import BaseModel

bootstrap, source, target = sys.argv[1:]
broker = KafkaBroker(bootstrap)


class Order(BaseModel):
    number: int
    item: str


@broker.subscriber(source, group_id=f"{source}-clerks", auto_offset_reset="earliest")
@broker.publisher(target)
async def receipt(order: Order) -> str:
    return f"{order.number}: {order.item.upper()}"


asyncio.run(FastStream(broker).run())
