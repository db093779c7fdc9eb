"""A broker of a few lines for tests of the client: answers each request with what a test put there."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from firnline.protocol.messages import messages_of
from firnline.protocol.messages.headers import RequestHeader, ResponseHeader
from firnline.protocol.messages.k18_api_versions import ApiVersion, ApiVersionsResponse
from firnline.protocol.schema import Message

# None: it hangs up.
Answer = Callable[[Any], Message | None]
API_VERSIONS = 18


class FakeBroker:
    """Serves the requests it has answers for; `asked` is what it was asked, in order."""

    def __init__(
        self, answers: dict[int, Answer], *, versions: dict[int, int] | None = None
    ) -> None:
        self.answers = answers
        self.asked: list[Any] = []
        self.versions = versions or {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            connection.close()
        self._thread.join(5)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._answer_all, args=(connection,), daemon=True).start()

    def _answer_all(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                frame = stream.read(struct.unpack(">i", size)[0])
                answer = self._answer(frame)
                if answer is None:
                    return  # as Kafka does with an API it has not: it hangs up
                connection.sendall(answer)

    def _answer(self, frame: bytes) -> bytes | None:
        key, version = struct.unpack_from(">hh", frame)
        request_class, _ = messages_of(key)
        flexible = version in request_class.flexible
        header, position = RequestHeader.read(frame, 2 if flexible else 1)
        request, end = request_class.read(frame, version, position)
        assert end == len(frame)
        if key == API_VERSIONS:
            body = self._api_versions().write(version)
        else:
            self.asked.append(request)
            answer = self.answers[key](request) if key in self.answers else None
            if answer is None:
                return None
            body = answer.write(version)
        is_flexible = flexible and key != API_VERSIONS
        head = ResponseHeader(correlation_id=header.correlation_id).write(int(is_flexible))
        return struct.pack(">i", len(head) + len(body)) + head + body

    def _api_versions(self) -> ApiVersionsResponse:
        rows = []
        for key in (API_VERSIONS, *self.answers):
            if key < 32000:
                valid = messages_of(key)[0].valid
                last = self.versions.get(key, valid.last)
                rows.append(ApiVersion(api_key=key, min_version=valid.first, max_version=last))
        return ApiVersionsResponse(api_keys=rows)
