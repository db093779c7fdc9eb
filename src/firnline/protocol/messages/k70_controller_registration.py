"""ControllerRegistration: a controller joins the cluster. PURE.

Source: KIP-919.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class ControllerListener(Struct):
    name = f("string", "0+", "Listener name.")
    host = f("string", "0+", "Host name or address.")
    port = f("uint16", "0+", "TCP port.")
    security_protocol = f("int16", "0+", "0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.")


class ControllerSupportedFeature(Struct):
    name = f("string", "0+", "Feature name.")
    min_supported_version = f("int16", "0+", "Lowest level.")
    max_supported_version = f("int16", "0+", "Highest level.")


class ControllerRegistrationRequest(
    Message, Request["ControllerRegistrationResponse"], key=70, valid="0", flexible="0+"
):
    controller_id = f("int32", "0+", "Node id of the controller.")
    incarnation_id = f("uuid", "0+", "Random id of this start of the process.")
    zk_migration_ready = f("bool", "0+", "Always false: ZooKeeper is gone.")
    listeners = f([ControllerListener], "0+", "Addresses by listener.")
    features = f([ControllerSupportedFeature], "0+", "Feature levels the node can run.")


class ControllerRegistrationResponse(Message, key=70, valid="0", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f("string", "0+", "Error message; null without an error.", nullable="0+")
