"""ListGroups: which groups this coordinator has. PURE.

Source: KIP-518, KIP-848.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class ListGroupsRequest(Message, Request["ListGroupsResponse"], key=16, valid="0-5", flexible="3+"):
    states_filter = f(["string"], "4+", "States to list; empty for all.")
    types_filter = f(["string"], "5+", "Group types to list; empty for all.")


class ListedGroup(Struct):
    group_id = f("string", "0+", "Group id.")
    protocol_type = f("string", "0+", "Kind of group, such as consumer.")
    group_state = f("string", "4+", "State of the group.")
    group_type = f("string", "5+", "Type of the group.")


class ListGroupsResponse(Message, key=16, valid="0-5", flexible="3+"):
    throttle_time_ms = f("int32", "1+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    groups = f([ListedGroup], "0+", "Groups found.")
