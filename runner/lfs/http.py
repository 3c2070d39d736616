"""Objects of Git LFS over HTTP: the batch API, https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md.

The bus's secret is sent only to the bus's own server. Redirects are not followed. Answers are bounded and parsed
strictly. The policy decides to which other servers an answer may point. What cannot be had is a Missing.
"""

import base64
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
import urllib3
from requests.utils import get_environ_proxies

from bridge.bus.hosts.address import Address, parse
from bridge.common import environment, strict_json
from bridge.errors import ManifestError, one_line
from runner.lfs.pointer import Missing, Pointer
from runner.policy import Bus

_TYPE = "application/vnd.git-lfs+json"
_BATCH = 100
_CHUNK = 1 << 20
_MAX_ANSWER = 4 << 20
_MAX_HEADERS = 16
_CONNECT_S, _SILENCE_S, HEADERS_S = 10, 30, 30
# A thread that waits for a slow server's headers cannot be ended, so the number of such threads is limited.
WAITING = threading.BoundedSemaphore(16)
# Headers that an LFS server may choose: about authorization and storage, not the target, framing or proxies.
_HEADER = re.compile(
    r"(?i:authorization|x-(?!forwarded|http-|original|rewrite|real-|host|proxy)[a-z0-9-]{1,60})"
)
_VALUE = re.compile(r"[ -~]{0,8192}")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _address(url: str) -> Address:
    """Divide a web address into its parts."""
    address = parse(url)
    if address.fault:
        raise Missing("the bus gives an invalid address")
    return address


def endpoint_of(bus: Bus) -> str:
    """Return the address of a bus's LFS server, derived as git-lfs does."""
    if not parse(bus.url).is_web:
        raise Missing("Git LFS files are fetched over HTTPS only: bus.url in the policy is of another kind")
    return f"{bus.url.rstrip('/').removesuffix('.git')}.git/info/lfs"


class LfsServer:
    """The LFS server of a bus."""

    def __init__(self, bus: Bus, secret: str | None, hosts: Sequence[str]) -> None:
        self._endpoint = endpoint_of(bus)
        # These headers are sent only to the endpoint's own server.
        self._headers: dict[str, str] = {}
        if secret:
            pair = base64.b64encode(f"x-access-token:{secret}".encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
        self._hosts = frozenset(hosts)
        self._actions: dict[str, tuple[str, dict[str, str]] | str] = {}
        self._session = requests.Session()
        # Ignore ~/.netrc: requests would send its passwords to any server that it lists.
        self._session.trust_env = False
        # Cookies of servers are never sent.
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def announce(self, wanted: Sequence[Pointer]) -> None:
        """Ask for the objects' addresses, a hundred at a time."""
        for start in range(0, len(wanted), _BATCH):
            self._ask(wanted[start : start + _BATCH])

    def read(self, wanted: Pointer) -> Iterator[bytes]:
        """Yield an object's content in pieces of at most a megabyte."""
        action = self._actions.get(wanted.oid, "the bus gave no address for this object")
        if isinstance(action, str):
            raise Missing(action)
        url, headers = action
        yield from self._open("GET", url, headers)

    def _ask(self, wanted: Sequence[Pointer]) -> None:
        body = {
            "operation": "download",
            "transfers": ["basic"],
            "hash_algo": "sha256",
            "objects": [{"oid": pointer.oid, "size": pointer.size} for pointer in wanted],
        }
        headers = {**self._headers, "Accept": _TYPE, "Content-Type": _TYPE}
        answer = b""
        for chunk in self._open("POST", f"{self._endpoint}/objects/batch", headers, strict_json.dumps(body)):
            answer += chunk
            if len(answer) > _MAX_ANSWER:
                raise Missing("the bus's answer is too long")
        try:
            reply = strict_json.loads(answer, what="the answer", max_bytes=_MAX_ANSWER)
            by_oid = {pointer.oid: pointer for pointer in wanted}
            for entry in reply["objects"]:
                if entry["oid"] in by_oid:
                    self._actions[entry["oid"]] = self._action(entry, by_oid[entry["oid"]])
        except (ManifestError, KeyError, TypeError, AttributeError) as error:
            raise Missing("the bus's answer is not that of an LFS server") from error

    def _action(self, entry: Mapping[str, Any], wanted: Pointer) -> tuple[str, dict[str, str]] | str:
        """Return the address and headers for an object, or why there are none."""
        if entry.get("error"):
            return one_line(f"the bus says: {entry['error'].get('message', 'an error')}"[:200])
        if entry["size"] != wanted.size:
            return "the bus knows it by another size"
        action = entry.get("actions", {}).get("download")
        if not action:
            return "the bus does not have it"
        url, headers = str(action["href"]), dict(action.get("header") or {})
        if refused := self._refuses(url):
            return refused
        if not _may_be_sent(headers):
            return "the bus names headers that cannot be sent"
        is_own = _address(url).origin == _address(self._endpoint).origin
        if is_own and "authorization" not in map(str.lower, headers):
            headers = {**self._headers, **headers}
        return url, headers

    def _refuses(self, url: str) -> str | None:
        """Return why an address is not allowed, or None."""
        address = _address(url)
        if address.user or address.password or not url.isprintable():
            return "the bus names an address that holds a user or a control character"
        if address.origin == _address(self._endpoint).origin:
            return None
        host = address.host
        if address.scheme != "https" and not (address.scheme == "http" and host in _LOOPBACK):
            return f"the bus names an address that is not https, at {host!a}"
        named = f"[{host}]" if ":" in host else host
        if not self._hosts & {named, address.origin.partition("://")[2]}:
            return f"it lies on {host!a}, which lfs.hosts in the policy does not name"
        return None

    def _open(
        self, method: str, url: str, headers: Mapping[str, str], body: str | None = None
    ) -> Iterator[bytes]:
        """Yield a server's answer in pieces. Any status but a plain success is ``Missing``."""
        try:
            with self._answer(method, url, headers, body) as answer:
                if answer.status_code != requests.codes.ok:
                    more = ", and redirects are not followed" if answer.is_redirect else ""
                    raise Missing(f"the server answered {answer.status_code}{more}")
                # Pass on small pieces at once, so that the caller's time limit also works for a slow server.
                while chunk := answer.raw.read1(_CHUNK, decode_content=False):
                    yield chunk
        except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
            raise Missing(f"the request to the server failed: {type(error).__name__}") from error

    def _answer(
        self, method: str, url: str, headers: Mapping[str, str], body: str | None
    ) -> requests.Response:
        """Send a request and return the answer once its headers have come. A thread bounds that: no timeout does."""
        if not WAITING.acquire(blocking=False):
            raise Missing("too many requests wait for slow servers")
        verify = environment.authorities() or True
        came: Future[requests.Response] = Future()

        def ask() -> None:
            try:
                answer = self._session.request(
                    method, url, headers={**headers, "Accept-Encoding": "identity"}, data=body, stream=True,
                    timeout=(_CONNECT_S, _SILENCE_S), allow_redirects=False, verify=verify,
                    proxies=get_environ_proxies(url),
                )  # fmt: skip
                if not came.set_running_or_notify_cancel():
                    answer.close()
                    return
                came.set_result(answer)
            except BaseException as error:  # noqa: BLE001 - passed to the waiting caller
                if not came.done():
                    came.set_exception(error)
            finally:
                WAITING.release()

        threading.Thread(target=ask, daemon=True).start()
        try:
            return came.result(HEADERS_S)
        except TimeoutError as error:
            came.cancel()
            raise Missing(f"the server did not begin its answer within {HEADERS_S} s") from error


def _may_be_sent(headers: Mapping[object, object]) -> bool:
    """Return whether an LFS server may choose all headers that it names."""
    return len(headers) <= _MAX_HEADERS and all(
        isinstance(name, str)
        and isinstance(value, str)
        and _HEADER.fullmatch(name)
        and _VALUE.fullmatch(value)
        for name, value in headers.items()
    )
