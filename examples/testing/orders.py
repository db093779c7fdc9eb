"""A small service: it reads orders, and writes a receipt for each."""

import json

from confluent_kafka import Consumer, Producer


def write_receipts(bootstrap: str, orders: str, receipts: str, count: int) -> None:
    """Read `count` orders and write their receipts; commit each order when its receipt is written."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "receipts",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    consumer.subscribe([orders])
    try:
        while count:
            message = consumer.poll(1.0)
            if message is None:
                continue
            order = json.loads(message.value())
            producer.produce(receipts, f"{order['item']}: {order['price'] * order['pieces']}")
            producer.flush()
            consumer.commit(message, asynchronous=False)
            count -= 1
    finally:
        consumer.close()
