"""AllocateProducerIds: a broker asks for a block of producer ids. PURE.

Source: KIP-730.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, f


class AllocateProducerIdsRequest(
    Message, Request["AllocateProducerIdsResponse"], key=67, valid="0", flexible="0+"
):
    broker_id = f("int32", "0+", "Node id of the broker.")
    broker_epoch = f("int64", "0+", "Broker epoch; -1 when unknown.", default=-1)


class AllocateProducerIdsResponse(Message, key=67, valid="0", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    producer_id_start = f("int64", "0+", "First id of the block.")
    producer_id_len = f("int32", "0+", "Count of ids in the block.")
