"""Envelope: a broker forwards a client's request to the controller. PURE.

Source: KIP-590.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, f


class EnvelopeRequest(Message, Request["EnvelopeResponse"], key=58, valid="0", flexible="0+"):
    request_data = f("bytes", "0+", "The wrapped request, header first.")
    request_principal = f(
        "bytes", "0+", "The principal of the client; null if unknown.", nullable="0+"
    )
    client_host_address = f("bytes", "0+", "Address of the client, 4 or 16 bytes.")


class EnvelopeResponse(Message, key=58, valid="0", flexible="0+"):
    response_data = f(
        "bytes",
        "0+",
        "The wrapped response, header first; null on error.",
        default=None,
        nullable="0+",
    )
    error_code = f("int16", "0+", "0, or why it failed.")
