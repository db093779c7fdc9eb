"""LeaveGroup: members leave a classic group; several from version 3. PURE.

Source: KIP-345, KIP-800.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class MemberIdentity(Struct):
    member_id = f("string", "3+", "Member id.")
    group_instance_id = f(
        "string", "3+", "Static member's id; null for a dynamic one.", default=None, nullable="3+"
    )
    reason = f("string", "5+", "Why the member leaves, for the log.", default=None, nullable="5+")


class LeaveGroupRequest(Message, Request["LeaveGroupResponse"], key=13, valid="0-5", flexible="4+"):
    group_id = f("string", "0+", "Group id.")
    member_id = f("string", "0-2", "Member id.")
    members = f([MemberIdentity], "3+", "Members that leave.")


class MemberResponse(Struct):
    member_id = f("string", "3+", "Member id.")
    group_instance_id = f(
        "string", "3+", "Static member's id; null for a dynamic one.", nullable="3+"
    )
    error_code = f("int16", "3+", "0, or why it failed.")


class LeaveGroupResponse(Message, key=13, valid="0-5", flexible="4+"):
    throttle_time_ms = f("int32", "1+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    members = f([MemberResponse], "3+", "One result per member.")
