"""Shows jobs the models of a Hugging Face cache that the host's files name, and nothing else of the cache.

A cache is where huggingface_hub keeps the user's tokens, and the models of everybody who uses this machine.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from bridge.common import environment
from bridge.presets import Preset
from bridge.presets.params import ChoiceParam
from runner.job.sandbox.paths import both_ways

# The variables that name a cache, and where in it the repositories are.
CACHES = {
    "HF_HOME": "hub",
    "HF_HUB_CACHE": "",
    "HUGGINGFACE_HUB_CACHE": "",
    "TRANSFORMERS_CACHE": "",
    "PYTORCH_TRANSFORMERS_CACHE": "",
    "PYTORCH_PRETRAINED_BERT_CACHE": "",
}
_KINDS = ("models", "datasets", "spaces", "kernels")
_PARTS = ("blobs", "refs", "snapshots", ".no_exist")
# Variables that hold a token, and files of a cache that do.
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_TOKEN_FILES = ("token", "stored_tokens")
_TOKEN = re.compile(r"[^\s=\[\]]{8,}", re.ASCII)
_TOKEN_BYTES = 1 << 16
_ID = re.compile(r"[\w.-]+(?:/[\w.-]+)?", re.ASCII)


def ids(settings: Mapping[str, str], preset: Preset | None) -> set[str]:
    """Return every text in the host's settings and in a preset that may be the id of a repository on the hub."""
    texts = [*settings.values()]
    if preset:
        texts += preset.env.values()
        texts += [token for step in preset.steps for token in step.argv]
        for param in preset.params.values():
            texts += param.values if isinstance(param, ChoiceParam) else ()
            texts += [param.default] if isinstance(param.default, str) else ()
    return {id_ for text in texts for id_ in _ID.findall(text)}


def repositories(variables: Mapping[str, str], wanted: Iterable[str]) -> dict[str, Path]:
    """Return the folders of these repositories in the caches that variables name, by the folders' names.

    The first variable of the table that has a repository counts.
    """
    names = [f"{kind}--{id_.replace('/', '--')}" for id_ in sorted(wanted) for kind in _KINDS]
    folders: dict[str, Path] = {}
    for cache in _caches(variables):
        folders |= {name: cache / name for name in names if name not in folders and (cache / name).is_dir()}
    return folders


def parts(repository: Path) -> list[Path]:
    """Return the folders of a repository that a job needs: a snapshot's links lead to blobs beside it."""
    return [folder / part for folder in both_ways([repository]) for part in _PARTS]


def roots(variables: Mapping[str, str]) -> list[Path]:
    """Return the caches that variables name, and those of this user, as whole folders."""
    mine = {name: value for name in CACHES if (value := environment.get(name))}
    named = [Path(value) for each in (variables, mine) for name, value in each.items() if name in CACHES]
    return [*(path for path in named if path.is_absolute()), *environment.private_homes()]


def job_variables(variables: Mapping[str, str], home: Path, wanted: Iterable[str]) -> dict[str, str]:
    """Return a job's variables, with a cache of its own instead of the host's.

    In this cache, the job can write, and ``hub`` has links to the named repositories.
    """
    caches = [name for name in CACHES if variables.get(name, "").startswith("/")]
    own = home / ".cache" / "huggingface"
    hub = own / "hub"
    if caches:
        hub.mkdir(parents=True, exist_ok=True)
        (own / "token").touch()  # empty, which the hub's tools read as: nobody has logged in
        for name, repository in repositories(variables, wanted).items():
            if not (hub / name).is_symlink():
                (hub / name).symlink_to(repository.resolve())
    return {**variables, **{name: str(hub if name != "HF_HOME" else own) for name in caches}}


def _caches(variables: Mapping[str, str]) -> Iterator[Path]:
    for name, below in sorted(CACHES.items(), key=lambda pair: bool(pair[1])):
        if (value := variables.get(name, "")).startswith("/"):
            yield Path(value) / below


def tokens(variables: Mapping[str, str]) -> list[str]:
    """Return the hub's tokens that this host's settings, environment and caches hold now, to remove them from logs."""
    texts = [value for name in _TOKENS for value in (variables.get(name), environment.get(name)) if value]
    folders = roots(variables)
    files = [folder / name for folder in (*folders, *(f.parent for f in folders)) for name in _TOKEN_FILES]
    files += [
        Path(path) for path in (variables.get("HF_TOKEN_PATH"), environment.get("HF_TOKEN_PATH")) if path
    ]
    for file in dict.fromkeys(files):
        with suppress(OSError):
            if file.is_file():
                with file.open(encoding="utf-8", errors="replace") as opened:
                    texts.append(opened.read(_TOKEN_BYTES))
    return list(dict.fromkeys(word for text in texts for word in _TOKEN.findall(text) if word != "hf_token"))
