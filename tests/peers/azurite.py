"""Azurite, Microsoft's emulator of Azure Blob Storage, for tests. WORLD.

    python -m tests.peers.azurite fetch        bring it (once, 360 MB on the disk, by npm)
    python -m tests.peers.azurite start DIR    serve DIR until Ctrl-C; prints URI and options for `firnline`

Needs Node.js 20 or later, and npm to bring it.
"""

import base64
import hashlib
import hmac
import shutil
import urllib.error
import urllib.request
from email.utils import formatdate
from pathlib import Path

from tests.peers.kafka import PeerMissing
from tests.peers.ports import free_ports
from tests.peers.servers import (
    Process,
    Server,
    cached,
    kept_ports,
    main,
    run_or_missing,
)

VERSION = "3.37.0"
CONTAINER = "firnline"
SECRET = base64.b64encode(b"secret of the server of blobs").decode()
_ACCOUNT = "firnline"
_OPTIONS = ("--skipApiVersionCheck", "--silent", "--disableTelemetry")
_START_SECONDS = 60


def fetch() -> Path:
    """Return the program, for Node.js; bring it first where it is missing. Raises PeerMissing."""
    if shutil.which("node") is None:
        raise PeerMissing("node is not on the PATH")
    modules = cached(f"azurite-{VERSION}", _install) / "node_modules"
    return modules / "azurite" / "dist" / "src" / "blob" / "main.js"


def start(directory: Path) -> Server:
    """Serve `directory` with the container CONTAINER; return when it answers. Raises PeerMissing."""
    program = fetch()
    base = directory.resolve()
    (port,) = kept_ports(base, lambda: free_ports(1))
    at: list[str | Path] = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    process = Process(
        ["node", program, *at, *_OPTIONS, "--location", base / "data"],
        base / "server.log",
        {"AZURITE_ACCOUNTS": f"{_ACCOUNT}:{SECRET}"},
    )
    endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
    server = Server(
        base,
        f"az://{CONTAINER}/tier",
        {"account_name": _ACCOUNT, "account_key": SECRET, "endpoint": endpoint},
        [process],
        lambda: _has_container(endpoint),
        start_seconds=_START_SECONDS,
    )
    server.start()
    return server


def _install(work: Path) -> Path:
    if shutil.which("npm") is None:
        raise PeerMissing("npm is not on the PATH")
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--omit=optional"]
    options += ["--prefix", str(work / "azurite")]
    run_or_missing(["npm", "install", *options, f"azurite@{VERSION}"], f"azurite {VERSION}", work)
    return work / "azurite"


def _has_container(endpoint: str) -> bool:
    """Create the container; true if the server has it then."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    path = f"/{_ACCOUNT}/{CONTAINER}"
    said = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    # The method, eleven headers that the request does not have, ours, and what it is about.
    blank = "\n" * 12
    text = f"PUT{blank}{said}/{_ACCOUNT}{path}\nrestype:container"
    signature = hmac.digest(base64.b64decode(SECRET), text.encode(), hashlib.sha256)
    headers["authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(signature).decode()}"
    request = urllib.request.Request(
        f"{endpoint}/{CONTAINER}?restype=container", method="PUT", headers=headers
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=5):
            return True
    except urllib.error.HTTPError as problem:
        return problem.code == 409
    except OSError:
        return False


if __name__ == "__main__":
    main("azurite", fetch, start)
