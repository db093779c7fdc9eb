"""Limits on scrapes, since each has a thread and a descriptor. WORLD."""

import socket
import sys
import threading
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from firnline.base.limits import SCRAPE_SILENCE_S, SCRAPES_MAX


class ScrapeHandler(WSGIRequestHandler):
    """One connection. It is closed when it is idle, and its requests are not logged."""

    timeout = SCRAPE_SILENCE_S

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log."""


class MetricsServer(ThreadingMixIn, WSGIServer):
    """A thread for each scrape, up to SCRAPES_MAX."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, *args: Any, **more: Any) -> None:
        if ":" in args[0][0]:
            self.address_family = socket.AF_INET6
        self._room = threading.BoundedSemaphore(SCRAPES_MAX)
        super().__init__(*args, **more)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread, or close it."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started, so nobody else releases the permit
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer the scrape, on its own thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up or stayed silent is no error of ours."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
