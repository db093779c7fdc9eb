"""Heartbeat: a member of a classic group is alive. PURE.

Source: KIP-345.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, f


class HeartbeatRequest(Message, Request["HeartbeatResponse"], key=12, valid="0-4", flexible="4+"):
    group_id = f("string", "0+", "Group id.")
    generation_id = f("int32", "0+", "Generation of the group; -1 for none.")
    member_id = f("string", "0+", "Member id.")
    group_instance_id = f(
        "string", "3+", "Static member's id; null for a dynamic one.", default=None, nullable="3+"
    )


class HeartbeatResponse(Message, key=12, valid="0-4", flexible="4+"):
    throttle_time_ms = f("int32", "1+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
