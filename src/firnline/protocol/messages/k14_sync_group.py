"""SyncGroup: the leader sends the assignment, each member gets its part. PURE.

Source: KIP-345, KIP-559.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class SyncGroupRequestAssignment(Struct):
    member_id = f("string", "0+", "Member id.")
    assignment = f("bytes", "0+", "The member's assignment.")


class SyncGroupRequest(Message, Request["SyncGroupResponse"], key=14, valid="0-5", flexible="4+"):
    group_id = f("string", "0+", "Group id.")
    generation_id = f("int32", "0+", "Generation of the group; -1 for none.")
    member_id = f("string", "0+", "Member id.")
    group_instance_id = f(
        "string", "3+", "Static member's id; null for a dynamic one.", default=None, nullable="3+"
    )
    protocol_type = f(
        "string", "5+", "Kind of group, such as consumer.", default=None, nullable="5+"
    )
    protocol_name = f("string", "5+", "Assignor chosen.", default=None, nullable="5+")
    assignments = f([SyncGroupRequestAssignment], "0+", "The leader's assignment, by member.")


class SyncGroupResponse(Message, key=14, valid="0-5", flexible="4+"):
    throttle_time_ms = f("int32", "1+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    protocol_type = f(
        "string", "5+", "Kind of group, such as consumer.", default=None, nullable="5+"
    )
    protocol_name = f("string", "5+", "Assignor chosen.", default=None, nullable="5+")
    assignment = f("bytes", "0+", "The member's assignment.")
