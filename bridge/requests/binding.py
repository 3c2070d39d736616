"""What a requester's signature is about: one branch of one repository, and one definition of the preset.

A commit's signature covers its message, so these stand there as trailers. Without them a commit that was signed for
one runner could be pushed to another one, or run as something else than the signer saw.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_SCP = re.compile(r"(?:[^@/:]+@)?(?P<host>[A-Za-z0-9._-]+):(?P<path>[^/].*)")


@dataclass(frozen=True)
class Binding:
    """The trailers of a signed request."""

    branch: str
    repository: str
    preset: str

    @property
    def trailers(self) -> str:
        """The lines that stand at the end of the commit's message."""
        return f"Branch: {self.branch}\nRepository: {self.repository}\nPreset: {self.preset}\n"

    @classmethod
    def parse(cls, message: str) -> Binding | None:
        """Read the trailers of a message; None where one of them is missing or stands twice."""
        last = message.rstrip("\n").rpartition("\n\n")[2]
        pairs = [line.partition(": ")[::2] for line in last.split("\n")]
        found = dict(pairs)
        if len(found) != len(pairs) or not {"Branch", "Repository", "Preset"} <= found.keys():
            return None
        return cls(found["Branch"], found["Repository"], found["Preset"])


def repository_name(url: str, base: Path | str = ".") -> str:
    """Return one name for a repository however it is reached: `github.com/owner/name`, or a folder's real path."""
    scp = _SCP.fullmatch(url)
    if url.startswith(("/", ".", "~", "file://")):
        folder = Path(url.removeprefix("file://")).expanduser()
        return f"file:{(Path(base) / folder).resolve()}"
    if "://" in url:
        parts = urlsplit(url)
        host, path = parts.hostname or "", parts.path
    elif scp:
        host, path = scp["host"], scp["path"]
    else:
        return f"file:{(Path(base) / url).resolve()}"
    return f"{host.lower()}/{path.strip('/').removesuffix('.git')}"
