"""AlterConfigs: replace all settings of a resource, the older way to change some. PURE.

Source: KIP-133, KIP-339 (its successor).
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class AlterableConfig(Struct):
    name = f("string", "0+", "Configuration key.")
    value = f("string", "0+", "Setting.", nullable="0+")


class AlterConfigsResource(Struct):
    resource_type = f("int8", "0+", "2 topic, 4 broker, and so on.")
    resource_name = f("string", "0+", "Name of the resource.")
    configs = f([AlterableConfig], "0+", "The complete new settings.")


class AlterConfigsRequest(
    Message, Request["AlterConfigsResponse"], key=33, valid="0-2", flexible="2+"
):
    resources = f([AlterConfigsResource], "0+", "By resource.")
    validate_only = f("bool", "0+", "Only check; change nothing.")


class AlterConfigsResourceResponse(Struct):
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f("string", "0+", "Error message; null without an error.", nullable="0+")
    resource_type = f("int8", "0+", "2 topic, 4 broker, and so on.")
    resource_name = f("string", "0+", "Name of the resource.")


class AlterConfigsResponse(Message, key=33, valid="0-2", flexible="2+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    responses = f([AlterConfigsResourceResponse], "0+", "One result per resource.")
