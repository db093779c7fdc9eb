"""SaslAuthenticate: tokens of the chosen SASL mechanism. PURE.

Source: KIP-152, KIP-368.
"""

from firnline.base.effects import Request
from firnline.protocol.schema import Message, f


class SaslAuthenticateRequest(
    Message, Request["SaslAuthenticateResponse"], key=36, valid="0-2", flexible="2+"
):
    auth_bytes = f("bytes", "0+", "Token of the mechanism.")


class SaslAuthenticateResponse(Message, key=36, valid="0-2", flexible="2+"):
    error_code = f("int16", "0+", "0, or why it failed.")
    error_message = f("string", "0+", "Error message; null without an error.", nullable="0+")
    auth_bytes = f("bytes", "0+", "Token of the mechanism.")
    session_lifetime_ms = f("int64", "1+", "Re-authenticate within this time; 0 for never.")
