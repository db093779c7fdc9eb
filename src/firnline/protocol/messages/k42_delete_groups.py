"""DeleteGroups: delete empty groups. PURE.

Source: KIP-229.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class DeleteGroupsRequest(
    Message, Request["DeleteGroupsResponse"], key=42, valid="0-2", flexible="2+"
):
    groups_names = f(["string"], "0+", "Groups to delete.")


class DeletableGroupResult(Struct):
    group_id = f("string", "0+", "Group id.")
    error_code = f("int16", "0+", "0, or why it failed.")


class DeleteGroupsResponse(Message, key=42, valid="0-2", flexible="2+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    results = f([DeletableGroupResult], "0+", "One result per item in the request.")
