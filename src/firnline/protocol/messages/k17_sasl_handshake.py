"""SaslHandshake: choose a SASL mechanism. PURE.

Source: KIP-43, KIP-152.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, f


class SaslHandshakeRequest(
    Message, Request["SaslHandshakeResponse"], key=17, valid="0-1", flexible="none"
):
    mechanism = f("string", "0+", "SASL mechanism wanted.")


class SaslHandshakeResponse(Message, key=17, valid="0-1", flexible="none"):
    error_code = f("int16", "0+", "0, or why it failed.")
    mechanisms = f(["string"], "0+", "SASL mechanisms on offer.")
