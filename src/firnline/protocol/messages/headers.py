"""Headers of requests and responses. PURE.

The client id stays in the classic encoding, so that any broker can read the header of an ApiVersions
request of any version (C11). Version 2 and 1 end with a tagged section. Source: KIP-482.
"""

from firnline.protocol.schema import Message, f


class RequestHeader(Message, key=-1, valid="1-2", flexible="2+"):
    request_api_key = f("int16", "0+", "API key.")
    request_api_version = f("int16", "0+", "API version.")
    correlation_id = f("int32", "0+", "The response repeats it.")
    client_id = f(
        "string",
        "1+",
        "Client id, in the classic encoding at all versions.",
        nullable="1+",
        flexible="none",
    )


class ResponseHeader(Message, key=-1, valid="0-1", flexible="1+"):
    correlation_id = f("int32", "0+", "The response repeats it.")
