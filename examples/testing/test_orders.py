"""Tests of the service, each with topics of its own; the last one kills the broker."""

import json

from orders import write_receipts

SKIS = json.dumps({"item": "skis", "price": 300, "pieces": 2})
POLES = json.dumps({"item": "poles", "price": 40, "pieces": 1})


def test_each_order_has_a_receipt(firnline_topic, firnline_session_broker):
    receipts = firnline_session_broker.create_topic()
    firnline_topic.put(SKIS, POLES)
    write_receipts(firnline_topic.bootstrap, firnline_topic, receipts, count=2)
    assert receipts.values() == [b"skis: 600", b"poles: 40"]


def test_orders_survive_a_crash_of_the_broker(firnline_broker):
    orders, receipts = (
        firnline_broker.create_topic("orders"),
        firnline_broker.create_topic("receipts"),
    )
    orders.put(SKIS)
    firnline_broker.kill()
    firnline_broker.start()
    orders.put(POLES)
    write_receipts(firnline_broker.bootstrap, orders, receipts, count=2)
    assert receipts.values() == [b"skis: 600", b"poles: 40"]
