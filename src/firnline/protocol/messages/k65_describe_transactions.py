"""DescribeTransactions: state of transactions. PURE.

Source: KIP-664.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class DescribeTransactionsRequest(
    Message, Request["DescribeTransactionsResponse"], key=65, valid="0", flexible="0+"
):
    transactional_ids = f(["string"], "0+", "Transactional ids.")


class DescribedTransactionTopic(Struct):
    topic = f("string", "0+", "Topic name.")
    partitions = f(["int32"], "0+", "Partition numbers.")


class DescribedTransaction(Struct):
    error_code = f("int16", "0+", "0, or why it failed.")
    transactional_id = f("string", "0+", "Transactional id; null without transactions.")
    transaction_state = f("string", "0+", "State of the transaction.")
    transaction_timeout_ms = f("int32", "0+", "Timeout after which a transaction is aborted.")
    transaction_start_time_ms = f("int64", "0+", "When it began; -1 if it has not.")
    producer_id = f("int64", "0+", "Producer id; -1 for none.")
    producer_epoch = f("int16", "0+", "Producer epoch; -1 for none.")
    topics = f([DescribedTransactionTopic], "0+", "Partitions in the transaction.")


class DescribeTransactionsResponse(Message, key=65, valid="0", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    transaction_states = f([DescribedTransaction], "0+", "By transaction.")
