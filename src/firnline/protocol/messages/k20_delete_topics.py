"""DeleteTopics: delete topics, by name or from version 6 by id. PURE.

Source: KIP-4, KIP-516.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class DeleteTopicState(Struct):
    name = f("string", "6+", "Topic name; null when given by id.", default=None, nullable="6+")
    topic_id = f("uuid", "6+", "Topic id.")


class DeleteTopicsRequest(
    Message, Request["DeleteTopicsResponse"], key=20, valid="1-6", flexible="4+"
):
    topics = f([DeleteTopicState], "6+", "Topics to delete, by name or id.")
    topic_names = f(["string"], "0-5", "Topics to delete, by name.")
    timeout_ms = f("int32", "0+", "How long the broker may take.")


class DeletableTopicResult(Struct):
    name = f("string", "0+", "Topic name; null for an unknown id.", nullable="6+")
    topic_id = f("uuid", "6+", "Topic id.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f(
        "string", "5+", "Error message; null without an error.", default=None, nullable="5+"
    )


class DeleteTopicsResponse(Message, key=20, valid="1-6", flexible="4+"):
    throttle_time_ms = f("int32", "1+", "How long the client must wait because of its quota.")
    responses = f([DeletableTopicResult], "0+", "One result per topic.")
