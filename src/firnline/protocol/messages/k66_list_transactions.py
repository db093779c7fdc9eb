"""ListTransactions: which transactions this coordinator has. PURE.

Source: KIP-664, KIP-994.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class ListTransactionsRequest(
    Message, Request["ListTransactionsResponse"], key=66, valid="0-2", flexible="0+"
):
    state_filters = f(["string"], "0+", "States to list; empty for all.")
    producer_id_filters = f(["int64"], "0+", "Producer ids to list; empty for all.")
    duration_filter = f(
        "int64", "1+", "List transactions open for longer, ms; -1 for all.", default=-1
    )
    transactional_id_pattern = f(
        "string",
        "2+",
        "Regular expression of ids to list; null for all.",
        default=None,
        nullable="2+",
    )


class ListedTransaction(Struct):
    transactional_id = f("string", "0+", "Transactional id; null without transactions.")
    producer_id = f("int64", "0+", "Producer id; -1 for none.")
    transaction_state = f("string", "0+", "State of the transaction.")


class ListTransactionsResponse(Message, key=66, valid="0-2", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    unknown_state_filters = f(["string"], "0+", "States that do not exist.")
    transaction_states = f([ListedTransaction], "0+", "By transaction.")
