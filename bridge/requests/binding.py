"""Binds a requester's signature to one branch of one repository, and to one definition of the preset.

All three are trailers of the commit's message, because the commit's signature covers the message. Otherwise a commit
that was signed for one runner could be pushed to another bus, or run with another definition of the preset. Maintainers
sign ordinary commits with the same key, so the message says that the commit is a request, and contains nothing else.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from bridge.bus.hosts.address import Kind, parse
from bridge.common import environment

# The line by which a client recognizes its own request: see bridge.requests.idempotency.
_KEY = re.compile(r"Key: [0-9a-f]{64}\n\Z")
_QUERY = re.compile(r"[?#].*", re.DOTALL)


@dataclass(frozen=True)
class Binding:
    """The trailers of a signed request."""

    branch: str
    repository: str
    preset: str

    @property
    def trailers(self) -> str:
        """The trailer lines for the commit's message."""
        return f"Branch: {self.branch}\nRepository: {self.repository}\nPreset: {self.preset}\n"

    def matches(self, message: str, preset: str) -> bool:
        """Return whether a message belongs to a request for a preset with this binding."""
        return _KEY.sub("", message) == f"{subject(preset)}\n\n{self.trailers}"

    @classmethod
    def parse(cls, message: str) -> "Binding | None":
        """Read the trailers of a message; None if one of them is missing or appears twice."""
        last = message.rstrip("\n").rpartition("\n\n")[2]
        pairs = [line.partition(": ")[::2] for line in last.split("\n")]
        fields = dict(pairs)
        if len(fields) != len(pairs) or not {"Branch", "Repository", "Preset"} <= fields.keys():
            return None
        return cls(fields["Branch"], fields["Repository"], fields["Preset"])


def subject(preset: str) -> str:
    """Return the first line of the message of a request for a preset."""
    return f"Request {preset}"


def repository_name(url: str, base: Path | str = ".") -> str:
    """Return one name for all addresses of a repository: ``github.com/owner/name``, or a folder's real path.

    A port that is not the scheme's default is part of the name, because another server may listen there.
    """
    address = parse(url)
    if address.is_local:
        folder = environment.expand(address.path) if address.kind is Kind.FOLDER else Path(address.path)
        return f"file:{(Path(base) / folder).resolve()}"
    path = _QUERY.sub("", address.decoded_path) if address.is_web else address.decoded_path
    return f"{address.server}/{path.strip('/').removesuffix('.git')}"
