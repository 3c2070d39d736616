"""The sandbox on macOS: a seatbelt profile for ``sandbox-exec``, deny by default.

The profile's text consists of two files (``*.sb``) and parameter names, and never contains a path. Paths are passed as
parameters, with links resolved, because seatbelt checks resolved paths: ``/tmp`` must be ``/private/tmp``.

The last matching rule decides. The job's access to the GPU is what MLX needs to open a Metal device and to compile
kernels. Metal's cache of compiled shaders is outside the workspace and not accessible.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from runner.job.sandbox.paths import layers
from runner.job.sandbox.private_files import PATTERN

PROGRAM = "/usr/bin/sandbox-exec"

_PRIVATE = re.compile(PATTERN)
SYSTEM = ("/System", "/usr", "/bin", "/sbin", "/Library/Apple", "/private/var/db/dyld")


def prefix(
    program: str,
    *,
    tree: Path,
    home: Path,
    network: bool,
    readable: Iterable[Path] = (),
    hidden: Iterable[Path] = (),
) -> list[str]:
    """Return the argv prefix."""
    profile, params = build_profile(tree=tree, home=home, network=network, readable=readable, hidden=hidden)
    options = [word for name, value in params.items() for word in ("-D", f"{name}={value}")]
    return [program, "-p", profile, *options, "--"]


def shown_by(argv: Sequence[str]) -> list[str]:
    """Return the paths that a prefix makes readable."""
    rules = [line for line in argv[2].split("\n") if line.startswith("(allow file-read* ")]
    fixed = [path for rule in rules for path in re.findall(r'\((?:subpath|literal) "([^"]+)"\)', rule)]
    return [*fixed, *(word.partition("=")[2] for word in argv if word.startswith("READ_"))]


def build_profile(
    *, tree: Path, home: Path, network: bool, readable: Iterable[Path] = (), hidden: Iterable[Path] = ()
) -> tuple[str, dict[str, str]]:
    """Return the profile and the values of its parameters."""
    profiles = ["seatbelt.sb", *(["network.sb"] if network else [])]
    text = "".join(Path(__file__).with_name(name).read_text(encoding="ascii") for name in profiles)
    params: dict[str, str] = {}

    def name(kind: str, path: Path) -> str:
        called = f"{kind}_{len(params)}"
        params[called] = str(path)
        return f'(param "{called}")'

    rules: list[str] = []
    # Folders that are shown although their own names are private, such as a virtual environment that is called .env.
    excepted = []
    for layer in layers(readable, hidden, SYSTEM):
        real = layer.path.resolve()
        kind = "subpath" if real.is_dir() else "literal"
        if layer.shown:
            called = name("READ", real)
            rules.append(f"(allow file-read* ({kind} {called}))")
            excepted += [f"(require-not ({kind} {called}))"] if _PRIVATE.search(str(real)) else []
        else:
            rules.append(f"(deny file-read* file-write* ({kind} {name('HIDE', real)}))")
    # The layers hide the private files that exist now; this rule hides those that are created later.
    matches = " ".join([f'(regex #"{PATTERN}")', *excepted])
    rules.append(f"(deny file-read* file-write* (require-all {matches}))")
    own = [name("WRITE", folder.resolve()) for folder in (tree, home)]
    rules += [f"(allow file-read* file-write* (subpath {folder}))" for folder in own]
    # Programs read the metadata of parent folders even if they may not list them.
    above = {parent for value in params.values() for parent in Path(value).parents if parent != Path("/")}
    rules += [f"(allow file-read-metadata (literal {name('ABOVE', path)}))" for path in sorted(above)]
    return text + "\n".join(rules) + "\n", params
