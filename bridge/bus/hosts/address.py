"""The only parser of repository addresses. It divides an address as git does; callers then judge each part.

Git takes an address for ``helper::anything`` first, then for a URL, for a folder, and for SSH's short form
``user@host:path``, in this order (git-fetch(1), GIT URLS). Git decodes the percent signs of a URL before it looks
for the host, unless it hands the URL over to curl.
"""

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote

_HELPER = re.compile(r"([A-Za-z0-9][A-Za-z0-9+.-]*)::")
_URL = re.compile(r"([A-Za-z0-9][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.DOTALL)
_SHORT = re.compile(r"(?:(?P<user>[^/:\[\]]*)@)?(?P<host>\[[^\]/]+\]|[^@:/\[\]]+):(?P<path>.*)", re.DOTALL)
_HOST = re.compile(r"\[[^\]]*\]|[^:\[\]]*")
# Letters of any script: curl translates such names. Git passes an encoded host on to curl, which decodes it.
_NAME = re.compile(r"(?:\w|%[0-9A-Fa-f]{2})(?:[\w.-]|%[0-9A-Fa-f]{2})*")
_ZONE = re.compile(r"[A-Za-z0-9._~-]+")
_MOST_PORT = 65_535
# The characters that RFC 3986 calls unreserved: they mean the same encoded and unencoded.
_UNRESERVED = re.compile(r"%(?:2[DdEe]|3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa]|5[Ff]|7[Ee])")

_PORTS = {"https": "443", "http": "80", "ssh": "22", "git": "9418"}
_SSH = frozenset({"ssh", "git+ssh", "ssh+git"})
# The schemes whose URLs git decodes itself.
_DECODED = _SSH | {"git", "file"}


class Kind(StrEnum):
    """The forms of addresses."""

    FOLDER = "folder"
    URL = "url"
    SHORT = "short"
    HELPER = "helper"


@dataclass(frozen=True)
class Address:
    """The parts of an address, as written apart from the case of scheme and host. A part that is missing is empty."""

    kind: Kind
    # How git transports it: https, http, ssh, git, file, or the name of another helper.
    scheme: str
    path: str
    user: str = ""
    password: str = ""
    # Without brackets.
    host: str = ""
    # The text after the host's colon, which need not be a number.
    port: str = ""
    # Git compares schemes by case.
    is_lower: bool = True

    @property
    def is_local(self) -> bool:
        """Whether the address is a folder on this machine."""
        return self.scheme == "file" and self.kind is not Kind.HELPER

    @property
    def is_web(self) -> bool:
        """Whether git reaches the address over HTTP or HTTPS."""
        return self.scheme in ("http", "https") and self.kind is not Kind.HELPER

    @property
    def origin(self) -> str:
        """Scheme, host and port as a URL without a path; without a port in the address, the usual one."""
        host = f"[{_canonical(self.host)}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port or _PORTS.get(self.scheme, '')}"

    @property
    def server(self) -> str:
        """The host, with the port if it is not the usual one. A host with colons has brackets beside a port."""
        host, port = _canonical(self.host), self.port if self.port != _PORTS.get(self.scheme) else ""
        if not port:
            return host
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def fault(self) -> str | None:
        """Why git cannot use the address, or could take a part for an option or a program; None if it is sound."""
        return next(_faults(self), None)

    @property
    def decoded_path(self) -> str:
        """The path in the spelling that all addresses of one repository share."""
        return _UNRESERVED.sub(lambda match: unquote(match[0]), self.path)


def parse(text: str) -> Address:
    """Divide an address into its parts. Any text can be divided: ``Address.fault`` judges the parts."""
    if helper := _HELPER.match(text):
        return Address(Kind.HELPER, helper[1], text[helper.end() :])
    if url := _URL.fullmatch(text):
        scheme, server, path = url[1].lower(), url[2], url[3]
        if scheme in _DECODED:
            # In these addresses, git gives `?` no meaning: everything before the first slash is the server.
            server, slash, path = unquote(text.partition("://")[2], errors="surrogateescape").partition("/")
            path = slash + path
        if scheme == "file":
            server, path = "", f"//{server}{path}" if server else path
        scheme = "ssh" if scheme in _SSH else scheme
        return Address(Kind.URL, scheme, path, *_server(server), is_lower=url[1].islower())
    if ":" not in text.partition("/")[0]:
        return Address(Kind.FOLDER, "file", text)
    if not (short := _SHORT.fullmatch(text)):
        return Address(Kind.SHORT, "ssh", text.partition(":")[2], host=text.partition(":")[0])
    host, port = short["host"], ""
    if host.startswith("["):
        # Git also takes `[host:port]:path`.
        host = host[1:-1]
        name, _, number = host.rpartition(":")
        if name and ":" not in name:
            host, port = name, number
    return Address(Kind.SHORT, "ssh", short["path"], short["user"] or "", "", host.lower(), port)


def _server(text: str) -> tuple[str, str, str, str]:
    """Return user, password, host and port."""
    account, _, server = text.rpartition("@")
    user, _, password = account.partition(":")
    match = _HOST.match(server)
    host = match[0] if match else ""
    rest = server[len(host) :]
    port = rest.removeprefix(":") if rest.startswith(":") else rest
    return user, password, host.removeprefix("[").removesuffix("]").lower(), port


def _canonical(host: str) -> str:
    """Return an IPv6 address in its shortest form, and other names as they are."""
    number, mark, zone = host.partition("%")
    try:
        return f"{ipaddress.IPv6Address(number).compressed}{mark}{zone}"
    except ValueError:
        return host


def _fault_of_host(host: str) -> str | None:
    if ":" in host:
        number, mark, zone = host.partition("%")
        try:
            ipaddress.IPv6Address(number)
        except ValueError:
            return f"{host!a} is not an IPv6 address"
        return f"{zone!a} is not a zone" if mark and not _ZONE.fullmatch(zone) else None
    is_name = _NAME.fullmatch(host) and _NAME.fullmatch(unquote(host))
    return None if is_name else f"{host!a} is not the name of a host"


def _faults(address: Address) -> Iterator[str]:
    if address.kind is Kind.HELPER:
        yield f"{address.scheme}:: would start a program, git-remote-{address.scheme}"
    if not address.is_lower:
        yield f"git knows {address.scheme} in lower case only"
    if address.scheme not in _PORTS and not address.is_local:
        yield f"git has no transport {address.scheme}"
    if not address.is_local and (fault := _fault_of_host(address.host)):
        yield fault
    if address.port and not (address.port.isdecimal() and 0 < int(address.port[:9]) <= _MOST_PORT):
        yield f"{address.port!a} is not a port"
    if address.kind is Kind.SHORT and address.path.startswith("\\"):
        yield "git takes what is before the colon for a host"
    if address.user.startswith("-") or (address.kind is not Kind.URL and address.path.startswith("-")):
        yield "a part of it begins with a dash"
