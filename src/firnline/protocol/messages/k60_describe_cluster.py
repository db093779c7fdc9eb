"""DescribeCluster: nodes of the cluster. PURE.

Source: KIP-700, KIP-919, KIP-1073.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class DescribeClusterRequest(
    Message, Request["DescribeClusterResponse"], key=60, valid="0-2", flexible="0+"
):
    include_cluster_authorized_operations = f(
        "bool", "0+", "Include the authorized operations of the cluster."
    )
    endpoint_type = f("int8", "1+", "1 brokers, 2 controllers.", default=1)
    include_fenced_brokers = f("bool", "2+", "Show fenced brokers too. KIP-1073.")


class DescribeClusterBroker(Struct):
    broker_id = f("int32", "0+", "Node id of the broker.")
    host = f("string", "0+", "Host name or address.")
    port = f("int32", "0+", "TCP port.")
    rack = f(
        "string", "0+", "Rack of the node; null when not configured.", default=None, nullable="0+"
    )
    is_fenced = f("bool", "2+", "Whether the broker is fenced.")


class DescribeClusterResponse(Message, key=60, valid="0-2", flexible="0+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f(
        "string", "0+", "Error message; null without an error.", default=None, nullable="0+"
    )
    endpoint_type = f("int8", "1+", "1 brokers, 2 controllers.", default=1)
    cluster_id = f("string", "0+", "Cluster id; null when not known.")
    controller_id = f("int32", "0+", "Node id of the controller; -1 when unknown.", default=-1)
    brokers = f([DescribeClusterBroker], "0+", "Live brokers.")
    cluster_authorized_operations = f(
        "int32",
        "0+",
        "Bits of permitted operations; the minimum when not asked.",
        default=-0x80000000,
    )
