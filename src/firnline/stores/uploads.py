"""Finds and aborts multipart uploads to S3 that never ended, which cost money and show in no listing. WORLD.

obstore has no call for it, so that the requests are signed here (AWS Signature Version 4). It needs
credentials that are settings or in the usual environment variables. With others, such as those of a role, a
rule of the bucket has to do it (AbortIncompleteMultipartUpload). Proxy and certificates are those of obstore.
"""

import hashlib
import hmac
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from typing import NamedTuple
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

from firnline.stores.port import RemoteStorageError, StoreRefused

_DEADLINE_S = 30.0
_EMPTY = hashlib.sha256(b"").hexdigest()


class Upload(NamedTuple):
    """An upload that has not ended."""

    key: str
    upload_id: str
    began: datetime


class Uploads:
    """The unfinished uploads of a bucket, below a prefix."""

    def __init__(
        self,
        address: str,
        prefix: str,
        *,
        region: str,
        credentials: tuple[str, str, str],
        opener: urllib.request.OpenerDirector,
    ) -> None:
        self._address = address
        self._opener = opener
        self._prefix = f"{prefix}/" if prefix else ""
        self._region = region
        self._access_key, self._secret, self._token = credentials

    @classmethod
    def of(cls, bucket: str, prefix: str, settings: Mapping[str, str]) -> "Uploads | None":
        """Return those of a bucket, by obstore's settings; None without credentials that can be read."""

        def setting(*names: str) -> str:
            found = [settings.get(name) or os.environ.get(f"AWS_{name.upper()}") for name in names]
            return next((each for each in found if each), "")

        access_key, secret = setting("access_key_id"), setting("secret_access_key")
        if not access_key or not secret:
            return None
        region = setting("region", "default_region") or "us-east-1"
        endpoint = setting("endpoint", "endpoint_url")
        is_virtual = setting("virtual_hosted_style_request").lower() == "true"
        if not endpoint:
            address = f"https://{bucket}.s3.{region}.amazonaws.com"
        else:
            address = endpoint.rstrip("/") + ("" if is_virtual else f"/{bucket}")
        credentials = (access_key, secret, setting("session_token", "token"))
        opener = _opener(address, setting)
        return cls(address, prefix, region=region, credentials=credentials, opener=opener)

    def abort(self, older_than_s: float, prefix: str = "") -> int:
        """Abort the uploads that began so long ago; return how many. Raises RemoteStorageError.

        prefix  only those of keys that begin with it, within the prefix of the store
        """
        now = datetime.now(UTC)
        count = 0
        for upload in list(self.found(prefix)):
            if (now - upload.began).total_seconds() >= older_than_s:
                self._ask("DELETE", f"/{quote(upload.key)}", {"uploadId": upload.upload_id})
                count += 1
        return count

    def found(self, prefix: str = "") -> Iterator[Upload]:
        """Yield the uploads that have not ended. Raises RemoteStorageError."""
        markers: dict[str, str] = {}
        while True:
            query = {"uploads": "", "prefix": self._prefix + prefix, **markers}
            tree = ElementTree.fromstring(self._ask("GET", "", query))
            for node in tree.iter():
                if _name(node) == "Upload":
                    texts = {_name(each): each.text or "" for each in node}
                    began = datetime.fromisoformat(texts["Initiated"].replace("Z", "+00:00"))
                    yield Upload(texts["Key"], texts["UploadId"], began)
            texts = {_name(each): each.text or "" for each in tree}
            if texts.get("IsTruncated") != "true":
                return
            markers = {
                "key-marker": texts["NextKeyMarker"],
                "upload-id-marker": texts["NextUploadIdMarker"],
            }

    def _ask(self, method: str, path: str, query: Mapping[str, str]) -> bytes:
        url = f"{self._address}{path}"
        headers = self._signed(method, url, query)
        address = f"{url}?{urlencode(sorted(query.items()), quote_via=quote, safe='-_.~')}"
        request = urllib.request.Request(address, method=method, headers=headers)
        try:
            with self._opener.open(request, timeout=_DEADLINE_S) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as problem:
            if problem.code == 404 and method == "DELETE":
                return b""
            kind = StoreRefused if problem.code in (401, 403, 404) else RemoteStorageError
            raise _failed(kind, f"HTTP {problem.code} {problem.reason}") from None
        except OSError as problem:
            raise _failed(RemoteStorageError, str(problem)) from None

    def _signed(self, method: str, url: str, query: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of a request without a body, with its signature."""
        parts = urlsplit(url)
        time = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        headers = {"host": parts.netloc, "x-amz-content-sha256": _EMPTY, "x-amz-date": time}
        if self._token:
            headers["x-amz-security-token"] = self._token
        names = ";".join(sorted(headers))
        canonical = "\n".join(
            (
                method,
                parts.path or "/",
                urlencode(sorted(query.items()), quote_via=quote, safe="-_.~"),
                *(f"{name}:{headers[name]}" for name in sorted(headers)),
                "",
                names,
                _EMPTY,
            )
        )
        scope = f"{time[:8]}/{self._region}/s3/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = f"AWS4{self._secret}".encode()
        for piece in scope.split("/"):
            key = hmac.digest(key, piece.encode(), "sha256")
        text = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}"
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._access_key}/{scope}, SignedHeaders={names},"
            f" Signature={signature}"
        )
        return headers


def _opener(address: str, setting: Callable[[str], str]) -> urllib.request.OpenerDirector:
    """Return what sends requests through the proxy, and trusts the certificates, that obstore is given.

    setting  returns a setting of the store, "" if it is not set. Without proxy_url the environment names the
             proxy, as it does for obstore.
    """
    context = ssl.create_default_context()
    for name in ("root_certificate", "proxy_ca_certificate"):
        if setting(name):  # obstore has read it before: it is PEM
            context.load_verify_locations(cadata=setting(name))
    if setting("allow_invalid_certificates").lower() == "true":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=context)]
    proxy = setting("proxy_url")
    if proxy:
        is_excluded = _is_excluded(urlsplit(address).hostname or "", setting("proxy_excludes"))
        used = {} if is_excluded else {"http": proxy, "https": proxy}
        handlers.append(urllib.request.ProxyHandler(used))
    return urllib.request.build_opener(*handlers)


def _is_excluded(host: str, excludes: str) -> bool:
    """Whether a host is one of those that obstore reaches without the proxy: names, suffixes, networks."""
    for each in (each.strip().lower() for each in excludes.split(",")):
        name = each.lstrip(".")
        if each and (each == "*" or host == name or host.endswith(f".{name}")):
            return True
        with suppress(ValueError):
            if ip_address(host) in ip_network(each, strict=False):
                return True
    return False


def _failed(kind: type[RemoteStorageError], why: str) -> RemoteStorageError:
    return kind("unfinished uploads cannot be listed or aborted", store=why)


def _name(node: ElementTree.Element) -> str:
    return node.tag.rpartition("}")[2]
