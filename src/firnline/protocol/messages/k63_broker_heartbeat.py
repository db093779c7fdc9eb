"""BrokerHeartbeat: a broker is alive, and what it wants. PURE.

Source: KIP-631, KIP-858.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, f


class BrokerHeartbeatRequest(
    Message, Request["BrokerHeartbeatResponse"], key=63, valid="0-2", flexible="0+"
):
    broker_id = f("int32", "0+", "Node id of the broker.")
    broker_epoch = f("int64", "0+", "Broker epoch; -1 when unknown.", default=-1)
    current_metadata_offset = f("int64", "0+", "Metadata offset the broker has applied.")
    want_fence = f("bool", "0+", "The broker asks to be fenced.")
    want_shut_down = f("bool", "0+", "The broker asks to shut down.")
    offline_log_dirs = f(["uuid"], "1+", "Log directories that failed.", tag=0)
    cordoned_log_dirs = f(
        ["uuid"],
        "2+",
        "Cordoned log directories; null when not stated. KIP-1066.",
        default=None,
        nullable="2+",
        tag=1,
    )


class BrokerHeartbeatResponse(Message, key=63, valid="0-2", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    is_caught_up = f("bool", "0+", "Whether the broker has caught up with the metadata.")
    is_fenced = f("bool", "0+", "Whether the broker is fenced.", default=True)
    should_shut_down = f("bool", "0+", "Whether the broker may shut down now.")
