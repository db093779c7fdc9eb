"""DescribeGroups: state and members of classic groups. PURE.

Source: KIP-430, KIP-1043.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class DescribeGroupsRequest(
    Message, Request["DescribeGroupsResponse"], key=15, valid="0-6", flexible="5+"
):
    groups = f(["string"], "0+", "Groups to describe.")
    include_authorized_operations = f(
        "bool", "3+", "Include the authorized operations of each group."
    )


class DescribedGroupMember(Struct):
    member_id = f("string", "0+", "Member id.")
    group_instance_id = f(
        "string", "4+", "Static member's id; null for a dynamic one.", default=None, nullable="4+"
    )
    client_id = f("string", "0+", "Client id.")
    client_host = f("string", "0+", "Address of the client.")
    member_metadata = f("bytes", "0+", "Subscription of the member.")
    member_assignment = f("bytes", "0+", "The member's assignment.")


class DescribedGroup(Struct):
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f(
        "string", "6+", "Error message; null without an error.", default=None, nullable="6+"
    )
    group_id = f("string", "0+", "Group id.")
    group_state = f("string", "0+", "State of the group.")
    protocol_type = f("string", "0+", "Kind of group, such as consumer.")
    protocol_data = f("string", "0+", "Assignor chosen; empty without one.")
    members = f([DescribedGroupMember], "0+", "Members of the group.")
    authorized_operations = f(
        "int32",
        "3+",
        "Bits of permitted operations; the minimum when not asked.",
        default=-0x80000000,
    )


class DescribeGroupsResponse(Message, key=15, valid="0-6", flexible="5+"):
    throttle_time_ms = f("int32", "1+", "How long the client must wait because of its quota.")
    groups = f([DescribedGroup], "0+", "One description per group.")
