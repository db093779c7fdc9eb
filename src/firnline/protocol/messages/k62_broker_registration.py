"""BrokerRegistration: a broker joins the cluster. PURE.

Source: KIP-631, KIP-858, KIP-966.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class BrokerListener(Struct):
    name = f("string", "0+", "Listener name.")
    host = f("string", "0+", "Host name or address.")
    port = f("uint16", "0+", "TCP port.")
    security_protocol = f("int16", "0+", "0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.")


class BrokerSupportedFeature(Struct):
    name = f("string", "0+", "Feature name.")
    min_supported_version = f("int16", "0+", "Lowest level.")
    max_supported_version = f("int16", "0+", "Highest level.")


class BrokerRegistrationRequest(
    Message, Request["BrokerRegistrationResponse"], key=62, valid="0-4", flexible="0+"
):
    broker_id = f("int32", "0+", "Node id of the broker.")
    cluster_id = f("string", "0+", "Cluster id; null when not known.")
    incarnation_id = f("uuid", "0+", "Random id of this start of the process.")
    listeners = f([BrokerListener], "0+", "Addresses by listener.")
    features = f([BrokerSupportedFeature], "0+", "Feature levels the node can run.")
    rack = f("string", "0+", "Rack of the node; null when not configured.", nullable="0+")
    is_migrating_zk_broker = f("bool", "1+", "Always false: ZooKeeper is gone.")
    log_dirs = f(["uuid"], "2+", "Log directories that are usable.")
    previous_broker_epoch = f(
        "int64", "3+", "Epoch at the last clean shutdown; -1 for none. KIP-966.", default=-1
    )


class BrokerRegistrationResponse(Message, key=62, valid="0-4", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    broker_epoch = f("int64", "0+", "Broker epoch; -1 when unknown.", default=-1)
