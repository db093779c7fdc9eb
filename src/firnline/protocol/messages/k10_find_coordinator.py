"""FindCoordinator: the coordinator of a group or a transaction. PURE.

Source: KIP-98, KIP-699.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class FindCoordinatorRequest(
    Message, Request["FindCoordinatorResponse"], key=10, valid="0-6", flexible="3+"
):
    coordinator_key = f("string", "0-3", "Group id or transactional id.", name="Key")
    key_type = f("int8", "1+", "0 group, 1 transaction, 2 share group.")
    coordinator_keys = f(["string"], "4+", "The ids to find.")


class Coordinator(Struct):
    key = f("string", "4+", "The id in the request.")
    node_id = f("int32", "4+", "Node id.")
    host = f("string", "4+", "Host name or address.")
    port = f("int32", "4+", "TCP port.")
    error_code = f("int16", "4+", "0, or why it failed.")
    error_message = f("string", "4+", "Error message; null without an error.", nullable="4+")


class FindCoordinatorResponse(Message, key=10, valid="0-6", flexible="3+"):
    throttle_time_ms = f("int32", "1+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0-3", "0, or why it failed.")
    error_message = f("string", "1-3", "Error message; null without an error.", nullable="1-3")
    node_id = f("int32", "0-3", "Node id.")
    host = f("string", "0-3", "Host name or address.")
    port = f("int32", "0-3", "TCP port.")
    coordinators = f([Coordinator], "4+", "One result per id.")
