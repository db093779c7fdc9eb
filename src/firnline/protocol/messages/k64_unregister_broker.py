"""UnregisterBroker: forget a broker for good. PURE.

Source: KIP-631.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, f


class UnregisterBrokerRequest(
    Message, Request["UnregisterBrokerResponse"], key=64, valid="0", flexible="0+"
):
    broker_id = f("int32", "0+", "Node id of the broker.")


class UnregisterBrokerResponse(Message, key=64, valid="0", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f("string", "0+", "Error message; null without an error.", nullable="0+")
