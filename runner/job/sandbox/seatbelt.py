"""The sandbox on macOS: a seatbelt profile for ``sandbox-exec``, deny by default.

The profile's text consists of two files (``*.sb``) and parameter names, and never contains a path. Paths are passed as
parameters, with links resolved, because seatbelt checks resolved paths: ``/tmp`` must be ``/private/tmp``.

The last matching rule decides. The job's access to the GPU is what MLX needs to open a Metal device and to compile
kernels. Metal's cache of compiled shaders is outside the workspace and not accessible.
"""

from collections.abc import Iterable
from pathlib import Path

from runner.job.sandbox.paths import layers

PROGRAM = "/usr/bin/sandbox-exec"

_SYSTEM = ("/System", "/usr", "/bin", "/sbin", "/Library/Apple", "/private/var/db/dyld")


def prefix(
    program: str,
    *,
    tree: Path,
    home: Path,
    network: bool,
    readable: Iterable[Path] = (),
    named: Iterable[Path] = (),
    hidden: Iterable[Path] = (),
) -> list[str]:
    """Return the argv prefix."""
    # Sockets in `named` need no extra rule: connections to all sockets are denied by default.
    shown = [*readable, *named]
    profile, params = build_profile(tree=tree, home=home, network=network, readable=shown, hidden=hidden)
    options = [word for name, value in params.items() for word in ("-D", f"{name}={value}")]
    return [program, "-p", profile, *options, "--"]


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

    rules = []
    for layer in layers(readable, hidden, _SYSTEM):
        real = layer.path.resolve()
        kind = "subpath" if real.is_dir() else "literal"
        if layer.shown:
            rules.append(f"(allow file-read* ({kind} {name('READ', real)}))")
        else:
            rules.append(f"(deny file-read* file-write* ({kind} {name('HIDE', real)}))")
    own = [name("WRITE", folder.resolve()) for folder in (tree, home)]
    rules += [f"(allow file-read* file-write* (subpath {folder}))" for folder in own]
    # Programs read the metadata of parent folders even if they may not list them.
    above = {parent for value in params.values() for parent in Path(value).parents if parent != Path("/")}
    rules += [f"(allow file-read-metadata (literal {name('ABOVE', path)}))" for path in sorted(above)]
    return text + "\n".join(rules) + "\n", params
