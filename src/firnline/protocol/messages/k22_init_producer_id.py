"""InitProducerId: an id and an epoch for an idempotent producer. Version 6 is not released yet. PURE.

Source: KIP-98, KIP-360.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, f


class InitProducerIdRequest(
    Message, Request["InitProducerIdResponse"], key=22, valid="0-5", flexible="2+"
):
    transactional_id = f(
        "string", "0+", "Transactional id; null without transactions.", nullable="0+"
    )
    transaction_timeout_ms = f("int32", "0+", "Timeout after which a transaction is aborted.")
    producer_id = f("int64", "3+", "Producer id; -1 for none.", default=-1)
    producer_epoch = f("int16", "3+", "Producer epoch; -1 for none.", default=-1)


class InitProducerIdResponse(Message, key=22, valid="0-5", flexible="2+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    producer_id = f("int64", "0+", "Producer id; -1 for none.", default=-1)
    producer_epoch = f("int16", "0+", "Producer epoch; -1 for none.")
