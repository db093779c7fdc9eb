"""DescribeConfigs: settings of topics, brokers and groups. PURE.

Source: KIP-133, KIP-226, KIP-569.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, Struct, f


class DescribeConfigsResource(Struct):
    resource_type = f("int8", "0+", "2 topic, 4 broker, and so on.")
    resource_name = f("string", "0+", "Name of the resource.")
    configuration_keys = f(["string"], "0+", "Keys to show; null for all.", nullable="0+")


class DescribeConfigsRequest(
    Message, Request["DescribeConfigsResponse"], key=32, valid="1-4", flexible="4+"
):
    resources = f([DescribeConfigsResource], "0+", "By resource.")
    include_synonyms = f("bool", "1+", "Show where each setting could come from.")
    include_documentation = f("bool", "3+", "Show the text about each key.")


class DescribeConfigsSynonym(Struct):
    name = f("string", "1+", "Configuration key.")
    value = f("string", "1+", "Setting; null when secret or unset.", nullable="0+")
    source = f("int8", "1+", "Where the setting comes from.")


class DescribeConfigsResourceResult(Struct):
    name = f("string", "0+", "Configuration key.")
    value = f("string", "0+", "Setting; null when secret or unset.", nullable="0+")
    read_only = f("bool", "0+", "Cannot be changed at run time.")
    config_source = f("int8", "1+", "Where the setting comes from.", default=-1)
    is_sensitive = f("bool", "0+", "Whether it is secret.")
    synonyms = f([DescribeConfigsSynonym], "1+", "Other sources of the key, strongest first.")
    config_type = f("int8", "3+", "Type of the key's value.")
    documentation = f("string", "3+", "Text about the key.", nullable="0+")


class DescribeConfigsResult(Struct):
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f("string", "0+", "Error message; null without an error.", nullable="0+")
    resource_type = f("int8", "0+", "2 topic, 4 broker, and so on.")
    resource_name = f("string", "0+", "Name of the resource.")
    configs = f([DescribeConfigsResourceResult], "0+", "Settings found.")


class DescribeConfigsResponse(Message, key=32, valid="1-4", flexible="4+"):
    throttle_time_ms = f("int32", "0+", "How long the client must wait because of its quota.")
    results = f([DescribeConfigsResult], "0+", "One result per item in the request.")
