"""What GitHub Actions says of a request branch, where the remote is on GitHub and a token is there. Read only."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from urllib.parse import quote, urlsplit

import requests

from bridge import environment

TIMEOUT_S = 10
_SCP = re.compile(r"(?:[^@/]+@)?(?P<host>[^:/]+):(?P<path>[^:].*)")


@dataclass(frozen=True)
class ActionsRun:
    """The newest workflow run on a branch. `problem` says why nothing could be learned, where that is so."""

    status: str | None = None
    conclusion: str | None = None
    url: str | None = None
    problem: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        """Return the form that `--json` prints."""
        return asdict(self)


def actions_run(remote_url: str, branch: str) -> ActionsRun | None:
    """Ask for the newest Actions run on a branch.

    Returns None where the remote is not on GitHub, where there is no GH_TOKEN or GITHUB_TOKEN, or where no run
    exists yet. A failing request is no error of the caller's: git alone suffices, so it is told in `problem`.
    """
    token = environment.get("GH_TOKEN") or environment.get("GITHUB_TOKEN")
    api = _api_url(remote_url)
    if not token or not api:
        return None
    headers = {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {token}",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    url = f"{api}/actions/runs?branch={quote(branch, safe='')}&per_page=1"
    try:
        # A redirect could carry the token to another host.
        answer = requests.get(url, headers=headers, timeout=TIMEOUT_S, allow_redirects=False)
        if answer.status_code != requests.codes.ok:
            return ActionsRun(problem=f"GitHub answered {answer.status_code} {answer.reason}")
        runs = answer.json().get("workflow_runs") or []
        if not runs:
            return None
        return ActionsRun(runs[0].get("status"), runs[0].get("conclusion"), runs[0].get("html_url"))
    except (requests.RequestException, ValueError, AttributeError, KeyError, IndexError, TypeError) as error:
        return ActionsRun(problem=f"GitHub could not be asked: {type(error).__name__}")


def _api_url(remote_url: str) -> str | None:
    """Return the REST address of the repository that a remote URL names, or None where it is not GitHub's."""
    server = environment.get("GITHUB_SERVER_URL", "https://github.com") or ""
    host, path = _split(remote_url)
    if not path:
        return None
    path = path.strip("/").removesuffix(".git")
    if path.count("/") != 1:
        return None
    if host == urlsplit(server).netloc:
        base = environment.get("GITHUB_API_URL") or (
            "https://api.github.com" if host == "github.com" else f"{server}/api/v3"
        )
    elif host == "github.com":
        base = "https://api.github.com"
    else:
        return None
    return f"{base}/repos/{path}"


def _split(remote_url: str) -> tuple[str, str]:
    """Return a remote URL's host (with its port) and path."""
    parts = urlsplit(remote_url)
    if parts.scheme and parts.netloc:
        host = parts.netloc.rsplit("@", 1)[-1]
        return (host.split(":")[0] if parts.scheme == "ssh" else host), parts.path
    found = _SCP.fullmatch(remote_url)
    return (found["host"], found["path"]) if found else ("", "")
