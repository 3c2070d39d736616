"""The only module that reads the process environment."""

import os
import pwd
import re
from collections.abc import Mapping
from pathlib import Path

from bridge.common.advice import Door
from bridge.common.errors import UsageError

# Settings that belong to one repository or one git call. Inherited from a hook, a rebase or a wrapper, they
# would point our git at another index or object store. So only settings about transport and trust pass, such
# as those that begin with `GIT_SSL_` or `GIT_PROXY_SSL_`.
_GIT_KEPT = (
    "GIT_ALLOW_PROTOCOL", "GIT_ASKPASS", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_SYSTEM",
    "GIT_EXEC_PATH", "GIT_HTTP_PROXY_AUTHMETHOD", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT",
    "GIT_TERMINAL_PROMPT", "GIT_TRACE", "GIT_TRACE_CURL",
)  # fmt: skip
_GIT_TLS = ("GIT_SSL_", "GIT_PROXY_SSL_")

# The one table of variables by which programs reach the outside. The client's and the runner's git, Git LFS and
# installed services get them.
PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_NOT_BY_PROXY = ("NO_PROXY", "no_proxy", "GIT_HTTP_PROXY_AUTHMETHOD")
# Authorities that are trusted besides the system's, the first one first. `GIT_SSL_NO_VERIFY` is not among them: a
# runner sends its token to no server that cannot prove its name.
_AUTHORITIES = (
    "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
)  # fmt: skip
_FILES = (
    *_AUTHORITIES, "GIT_SSL_CERT", "GIT_SSL_KEY", "GIT_PROXY_SSL_CAINFO", "GIT_PROXY_SSL_CERT", "GIT_PROXY_SSL_KEY",
)  # fmt: skip
_OUTSIDE = (*PROXIES, *_NOT_BY_PROXY, *_FILES)
# Variables that decide where a runner's own folders are.
_PLACES = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
# Variables by which MLX finds the other ranks.
_OF_A_LAUNCH = (
    "MLX_RANK",
    "MLX_HOSTFILE",
    "MLX_WORLD_SIZE",
    "MLX_IBV_DEVICES",
    "MLX_JACCL_COORDINATOR",
    "MLX_JACCL_RING",
)
# Variables of a shell that no service gets: it outlives the agent, and a file of a service is no place for a token.
_OF_THE_SHELL = ("SSH_AUTH_SOCK", "KAKEYA_BUS_TOKEN")


def get(name: str, default: str | None = None) -> str | None:
    """Return the variable, or ``default`` if it is unset or empty."""
    return os.environ.get(name) or default


def current_door() -> Door:
    """Return the place of this program's output: a workflow's log, if the Action says so, or a terminal."""
    return Door.ACTION if get("KAKEYA_DOOR") == Door.ACTION.value else Door.TERMINAL


def for_terminal() -> dict[str, str]:
    """Return the environment for a library that prints, without invalid sizes of the terminal."""
    sizes = {name: value for name in ("COLUMNS", "LINES") if (value := os.environ.get(name)) is not None}
    wrong = {name for name, value in sizes.items() if not re.fullmatch("[1-9][0-9]{0,3}", value, re.ASCII)}
    return {name: value for name, value in os.environ.items() if name not in wrong}


def with_temporary(folder: Path) -> dict[str, str]:
    """Return the environment for a program whose temporary files belong into a folder."""
    return {**os.environ, "TMPDIR": str(folder)}


def for_member() -> dict[str, str]:
    """Return the environment for one of several runners of a service. Only the service talks to its manager."""
    own = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")
    return {name: value for name, value in os.environ.items() if name not in own}


def for_ranks(count: int) -> dict[str, str]:
    """Return the environment for ``mlx.launch``: without another launch's, and for ``count`` ranks on this machine."""
    threads = max(1, (os.cpu_count() or 1) // count)
    inherited = {name: value for name, value in for_terminal().items() if name not in _OF_A_LAUNCH}
    return {"OPENBLAS_NUM_THREADS": str(threads), **inherited}


def without_plugins() -> None:
    """Keep pydantic from searching all installed packages for plugins, which takes a tenth of a short command."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def set_offline() -> None:
    """Keep huggingface_hub off the network. Has an effect only before that package is imported."""
    os.environ["HF_HUB_OFFLINE"] = "1"


def set_hub_cache(folder: Path) -> None:
    """Have huggingface_hub keep its files in a folder. Has an effect only before that package is imported."""
    os.environ["HF_HUB_CACHE"] = str(expand(folder).absolute())


def make_paths_absolute(*names: str) -> None:
    """Make paths in variables absolute, so that they stay valid when this process changes its folder."""
    for name in names:
        value = get(name, "")
        if value and "-----BEGIN" not in value:
            os.environ[name] = str(expand(value).absolute())


def for_user_git() -> dict[str, str]:
    """Return the environment for git calls made on behalf of the user, in the user's repository."""
    passed = {*_GIT_KEPT, *_pairs()}
    environment = {
        name: value for name, value in os.environ.items()
        if not name.startswith("GIT_") or name in passed or name.startswith(_GIT_TLS)
    }  # fmt: skip
    return environment | {"LC_ALL": "C.UTF-8", "GIT_NO_REPLACE_OBJECTS": "1"}


def without_prompts(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which neither git nor its helpers prompt, in a terminal or in a window."""
    quiet = {"GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS_REQUIRE": "never", "GCM_INTERACTIVE": "never"}
    return {**quiet, **{name: value for name, value in env.items() if name != "SSH_ASKPASS"}}


def _pairs() -> set[str]:
    """Return the names of the ``GIT_CONFIG_COUNT`` family, which carries credentials in some CI systems."""
    count = os.environ.get("GIT_CONFIG_COUNT", "")
    if not count.isdecimal():
        return set()
    numbered = {f"GIT_CONFIG_{kind}_{i}" for i in range(int(count)) for kind in ("KEY", "VALUE")}
    return numbered | {"GIT_CONFIG_COUNT"}


def for_isolated_git() -> dict[str, str]:
    """Return the environment for git calls that must not read anybody's configuration."""
    passed = ("PATH", "HOME", "TMPDIR", "SSH_AUTH_SOCK", *_OUTSIDE)
    env = {name: os.environ[name] for name in passed if name in os.environ}
    return without_prompts(env) | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        # Ignore `refs/replace/`, so that an id always means the same object.
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C.UTF-8",
    }


def outside() -> dict[str, str]:
    """Return the variables through which this process reaches the network."""
    return {name: value for name in _OUTSIDE if (value := get(name))}


def authorities() -> str | None:
    """Return the named file or folder of trusted authorities that replaces the system's, if there is one."""
    return next((value for name in _AUTHORITIES if (value := get(name))), None)


def for_service(*, is_own: bool) -> tuple[dict[str, str], list[str]]:
    """Return the variables of this shell that a service needs too, and the names of those that it does not get.

    Other users can read the file of a service, so an address that holds a user or a password is not among them.
    ``is_own`` says that the service runs as the user of this shell.
    """
    variables = outside() | {name: value for name in _PLACES if is_own and (value := get(name))}
    left_out = [name for name in PROXIES if "@" in variables.get(name, "")]
    left_out += [name for name in _OF_THE_SHELL if get(name)]
    for name in (*_FILES, *_PLACES):
        if name in variables:
            variables[name] = str(expand(variables[name]).absolute())
    return {name: value for name, value in variables.items() if name not in left_out}, left_out


def home() -> Path:
    """Return the user's home folder.

    Raises:
        UsageError: this user has none, as in a container with a random user id.
    """
    named = get("HOME")
    if named and not Path(named).is_absolute():
        fix = "Set HOME to a folder of this user."
        raise UsageError(f"HOME is {named!r}, which is not an absolute path", fix=fix, code="no_home")
    try:
        return Path(named or pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError as error:
        message = "this user has no home folder: HOME is not set, and the system has no user of this number"
        fix = "Set HOME to a folder of this user, or name the file or folder in the command."
        raise UsageError(message, fix=fix, code="no_home") from error


def expand(path: str | Path) -> Path:
    """Return a path with a leading ``~`` or ``~user`` replaced by that home folder.

    Raises:
        UsageError: there is none.
    """
    first, *rest = Path(path).parts or (".",)
    if first == "~":
        return Path(home(), *rest)
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        message = f"{path} is in the home folder of a user who does not exist on this machine"
        raise UsageError(message, fix="Write the path in full.", code="no_home") from error


def config_home() -> Path:
    """Return the folder of the user's settings."""
    return Path(get("XDG_CONFIG_HOME") or home() / ".config") / "kakeya"


def data_home() -> Path:
    """Return the folder of large files that can be fetched again."""
    return Path(get("XDG_DATA_HOME") or home() / ".local" / "share") / "kakeya"


def fetched_model(name: str) -> Path:
    """Return the folder of a model that ``kakeya-engine models get`` downloads, whether it exists or not."""
    return data_home() / "models" / name


def private_homes() -> list[Path]:
    """Return the folders in which this user and the tools of the Hugging Face hub keep secrets, if there are any."""
    try:
        mine = home()
    except UsageError:
        return []
    return [
        mine,
        config_home(),
        Path(get("XDG_CACHE_HOME") or mine / ".cache") / "huggingface",
        mine / ".huggingface",
    ]


def state_home() -> Path:
    """Return the folder of durable state other than settings."""
    return Path(get("XDG_STATE_HOME") or home() / ".local" / "state") / "kakeya"


def user_name() -> str:
    """Return the login name, or ``unknown``."""
    return get("USER") or get("LOGNAME") or "unknown"
