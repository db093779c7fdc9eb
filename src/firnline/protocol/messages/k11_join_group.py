"""JoinGroup: enter a classic group, or a rebalance of it. PURE.

Source: KIP-394, KIP-345, KIP-800.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class JoinGroupRequestProtocol(Struct):
    name = f("string", "0+", "Topic name.")
    metadata = f("bytes", "0+", "Subscription, in the protocol's own encoding.")


class JoinGroupRequest(Message, Request["JoinGroupResponse"], key=11, valid="0-9", flexible="6+"):
    group_id = f("string", "0+", "Group id.")
    session_timeout_ms = f(
        "int32", "0+", "The member is removed after so long without a heartbeat."
    )
    rebalance_timeout_ms = f("int32", "1+", "Time to rejoin in a rebalance.", default=-1)
    member_id = f("string", "0+", "Member id.")
    group_instance_id = f(
        "string", "5+", "Static member's id; null for a dynamic one.", default=None, nullable="5+"
    )
    protocol_type = f("string", "0+", "Kind of group, such as consumer.")
    protocols = f(
        [JoinGroupRequestProtocol], "0+", "Assignors that the member supports, preferred first."
    )
    reason = f("string", "8+", "Why the member joins, for the log.", default=None, nullable="8+")


class JoinGroupResponseMember(Struct):
    member_id = f("string", "0+", "Member id.")
    group_instance_id = f(
        "string", "5+", "Static member's id; null for a dynamic one.", default=None, nullable="5+"
    )
    metadata = f("bytes", "0+", "The member's subscription.")


class JoinGroupResponse(Message, key=11, valid="0-9", flexible="6+"):
    throttle_time_ms = f("int32", "2+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    generation_id = f("int32", "0+", "Generation of the group; -1 for none.", default=-1)
    protocol_type = f(
        "string", "7+", "Kind of group, such as consumer.", default=None, nullable="7+"
    )
    protocol_name = f("string", "0+", "Assignor chosen.", nullable="7+")
    leader = f("string", "0+", "Member id of the leader.")
    skip_assignment = f("bool", "9+", "The leader must not compute an assignment.")
    member_id = f("string", "0+", "Member id.")
    members = f([JoinGroupResponseMember], "0+", "All members; only for the leader.")
