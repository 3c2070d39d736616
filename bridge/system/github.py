"""The GitHub Actions run of a request branch, if the remote is on GitHub and a token is set. Read only."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import asdict, dataclass
from urllib.parse import quote, urlsplit

from bridge.common import environment, limits, strict_json
from bridge.errors import KakeyaError

TIMEOUT_S = limits.API_SECONDS
_MAX_DEPTH = 32
# Of a packed body so much is unpacked at a time.
_PIECE = 1024
_WORD = re.compile(r"[a-z_]{1,40}")
_SCP = re.compile(r"(?:[^@/]+@)?(?P<host>[^:/]+):(?P<path>[^:].*)")


@dataclass(frozen=True)
class ActionsRun:
    """The newest workflow run on a branch. ``problem`` says why nothing could be learned, where that is so."""

    status: str | None = None
    conclusion: str | None = None
    url: str | None = None
    problem: str | None = None

    def as_dict(self) -> dict[str, str | None]:
        """Return what ``--json`` prints."""
        return asdict(self)


def actions_run(remote_url: str, branch: str) -> ActionsRun | None:
    """Ask for the newest Actions run on a branch.

    Returns None if the remote is not on GitHub, where there is no GH_TOKEN or GITHUB_TOKEN, or where no run
    exists yet. A failing request is no error of the caller's: git alone suffices, so it is told in ``problem``.
    """
    token = environment.get("GH_TOKEN") or environment.get("GITHUB_TOKEN")
    api = api_url(remote_url)
    if not token or not api:
        return None
    headers = {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {token}",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    url = f"{api}/actions/runs?branch={quote(branch, safe='')}&per_page=1"
    runs: list[ActionsRun | None] = []
    # A server may send a byte now and then for ever, which no timeout of a socket ends.
    asking = threading.Thread(target=lambda: runs.append(_ask(url, headers)), daemon=True)
    asking.start()
    asking.join(TIMEOUT_S)
    return runs[0] if runs else ActionsRun(problem=f"GitHub did not answer within {TIMEOUT_S:g} s")


def _ask(url: str, headers: dict[str, str]) -> ActionsRun | None:
    """Ask once. Whatever comes back, or does not, is no error."""
    import requests  # noqa: PLC0415 - slow to import, and most remotes are not GitHub's or have no token

    until = time.monotonic() + TIMEOUT_S
    try:
        with requests.Session() as session:
            # A `.netrc` would replace the token. Of the environment only the proxy counts, as it does for git.
            session.trust_env = False
            session.proxies = requests.utils.get_environ_proxies(url)
            # A redirect could carry the token to another host.
            answer = session.get(
                url, headers=headers, timeout=TIMEOUT_S / 2, allow_redirects=False, stream=True
            )
            if answer.status_code != requests.codes.ok:
                return ActionsRun(problem=f"GitHub answered {answer.status_code}")
            body = bytearray()
            for piece in answer.iter_content(_PIECE):
                body += piece
                if len(body) > limits.API_BYTES or time.monotonic() > until:
                    return ActionsRun(problem="GitHub's answer is too large or too slow")
        return newest_run(strict_json.loads(bytes(body), max_bytes=limits.API_BYTES, max_depth=_MAX_DEPTH))
    except (requests.RequestException, OSError, KakeyaError) as error:
        return ActionsRun(problem=f"the request to GitHub failed: {type(error).__name__}")


def newest_run(answer: object) -> ActionsRun | None:
    """Return the first run in an answer; None if there is none. Only what has the form of such a field is taken."""
    runs = answer.get("workflow_runs") if isinstance(answer, dict) else None
    if runs == []:
        return None
    first = runs[0] if isinstance(runs, list) else None
    if not isinstance(first, dict):
        return ActionsRun(problem="the request to GitHub failed: its answer has another form")
    return ActionsRun(
        _word(first.get("status")), _word(first.get("conclusion")), _address(first.get("html_url"))
    )


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None


def _address(value: object) -> str | None:
    """Return an address that a browser opens, in plain characters; None for everything else."""
    plain = isinstance(value, str) and re.fullmatch(r"https?://[!-~]{1,500}", value)
    return str(value) if plain else None


def api_url(remote_url: str) -> str | None:
    """Return the REST address of the repository that a remote URL names, or None if it is not GitHub's."""
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
    match = _SCP.fullmatch(remote_url)
    return (match["host"], match["path"]) if match else ("", "")
