"""A port that another process has: the node does not start, and says what to do."""

import re
import socket

import pytest

from firnline.base.errors import ConfigError
from firnline.config.load import load
from firnline.server.main import _bind


def test_a_port_that_is_taken_is_refused_with_the_remedy_and_leaves_no_socket_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        free, port = first.getsockname()[1], taken.getsockname()[1]
        first.close()
        config = load(
            {
                "node.id": "1",
                "process.roles": "broker",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "2@127.0.0.1:1",
                "listeners": f"PLAINTEXT://127.0.0.1:{free},OTHER://127.0.0.1:{port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT",
            }
        )
        said = (
            f"cannot listen on 127.0.0.1:{port} (OTHER): Address already in use; stop what listens"
        )
        with pytest.raises(ConfigError, match=re.escape(said) + r".*`listeners`; --port of"):
            _bind(config.client_listeners)
        socket.create_server(("127.0.0.1", free)).close()
