"""Builds the links in pages: addresses on the server, or relative paths between exported files."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlencode

from bridge.web.snapshot import Filter


@dataclass(frozen=True)
class Links:
    """The links of one page. ``root`` is the relative path to the first page. Exported files have no queries."""

    root: str = "/"
    files: bool = False

    def home(self, page: int = 1, wanted: Filter | None = None) -> str:
        """Return the address of a page of the list."""
        if self.files:
            return f"{self.root}{list_file(page)}"
        params = (wanted.as_params() if wanted else {}) | ({"page": str(page)} if page > 1 else {})
        return self.root + (f"?{urlencode(params)}" if params else "")

    def run(self, branch: str) -> str:
        """Return the address of a request's page."""
        return f"{self.root}run/{quote(branch)}" + ("/index.html" if self.files else "")

    def log(self, branch: str) -> str:
        """Return the address of a request's log as plain text."""
        return f"{self.root}run/{quote(branch)}/log.txt" if self.files else f"{self.root}log/{quote(branch)}"

    def trends(self) -> str:
        """Return the address of the trends."""
        return f"{self.root}trends" + (".html" if self.files else "")

    def asset(self, name: str) -> str:
        """Return the address of the style sheet or the script."""
        return f"{self.root}{name}"


def list_file(page: int) -> str:
    """Return the name of the file with a page of the list."""
    return "index.html" if page == 1 else f"page-{page}.html"
