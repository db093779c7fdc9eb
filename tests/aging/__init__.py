"""Bytes that no proper client sends, over real sockets, and what the broker makes of them."""
