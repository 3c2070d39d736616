"""Python sources of the running interpreter, as text for training, if their licences allow it.

These are the standard library, and packages that this project installs anyway under permissive licences
(``PACKAGES``). Files are ordered by their digest and not by path, so that the choice of held-out files
depends only on their content.
"""

import hashlib
import itertools
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from engine.errors import BadInput

# Distributions by licence, as in their metadata. Others are not read, even if they are installed.
PACKAGES = {
    "MIT": (
        "anyio", "attrs", "build", "charset-normalizer", "execnet", "filelock", "h11", "hatchling", "jsonschema",
        "markdown-it-py", "mlx", "mlx-lm", "mypy", "pip", "pluggy", "pydantic", "pytest", "PyYAML", "referencing",
        "rich", "ruamel.yaml", "securesystemslib", "setuptools", "typer", "urllib3",
    ),
    "Apache-2.0": ("check-jsonschema", "coverage", "huggingface-hub", "requests", "transformers"),
    "BSD-3-Clause": ("click", "fsspec", "httpcore", "httpx", "idna", "Jinja2", "numpy", "psutil"),
    "BSD-2-Clause": ("import-linter", "Pygments"),
    "Apache-2.0 OR BSD-2-Clause": ("packaging",),
}  # fmt: skip
PACKAGE_CAP = 2_500_000  # the most bytes of one package, so that no single style dominates
FILE_SIZES = (400, 200_000)
LONG_LINE = 30  # a shared line counts as a repetition only if it has at least this many characters
HELD_OUT = 32  # held-out files of the standard library

# Folders with tables, tests and translations, which teach a model little about code.
_SKIPPED = {"test", "tests", "_vendor", "idlelib", "lib2to3", "encodings", "pydoc_data", "site-packages"}
_SKIPPED_NAMES = ("unistring.py", "uts46data.py", "idnadata.py")


@dataclass(frozen=True)
class File:
    """One source file: where its text came from, and the text."""

    source: str
    name: str
    text: str

    @property
    def digest(self) -> str:
        """SHA-256 of the text, in hexadecimal."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class Corpus:
    """Files to train on, and held-out files."""

    train: tuple[File, ...]
    held_out: tuple[File, ...]

    def digest(self) -> str:
        """SHA-256 over the files' digests, training files first."""
        parts = (file.digest for part in (self.train, self.held_out) for file in part)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def collect() -> Corpus:
    """Read the corpus of this interpreter; BadInput if the standard library's sources are absent."""
    sources = sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    library = sorted(_read("python", sources), key=lambda file: file.digest)
    if len(library) < 2 * HELD_OUT:
        raise BadInput("this Python comes without its sources", "use an interpreter that has its .py files")
    held_out, train = library[:HELD_OUT], library[HELD_OUT:]
    for name in sorted(itertools.chain(*PACKAGES.values()), key=str.lower):
        files = sorted(_read(name, _package_files(name)), key=lambda file: file.digest)
        train += capped(files, PACKAGE_CAP)
    return Corpus(tuple(without_repeats(train, held_out)), tuple(held_out))


def _package_files(name: str) -> list[Path]:
    try:
        return [Path(file.locate()) for file in metadata.files(name) or [] if file.suffix == ".py"]
    except metadata.PackageNotFoundError:
        return []


def _read(source: str, paths: Iterable[Path]) -> Iterator[File]:
    for path in paths:
        posix = path.as_posix()
        inside = posix if source == "python" else posix.rpartition("/site-packages/")[2]
        if not _SKIPPED.isdisjoint(inside.split("/")[:-1]) or path.name in _SKIPPED_NAMES:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if FILE_SIZES[0] <= len(text) <= FILE_SIZES[1]:
            yield File(source, path.name, text)


def capped(files: list[File], cap: int) -> list[File]:
    """Return the first files, up to ``cap`` characters in all."""
    sizes = itertools.accumulate(len(file.text) for file in files)
    return [file for file, size in zip(files, sizes, strict=True) if size <= cap]


def without_repeats(train: list[File], held_out: list[File]) -> Iterator[File]:
    """Drop files that repeat another file, or share much of their text with a held-out one."""
    digests = {file.digest for file in held_out}
    lines = {line for file in held_out for line in _long_lines(file)}
    for file in train:
        own = _long_lines(file)
        if file.digest not in digests and (not own or len(own & lines) < 0.2 * len(own)):
            digests.add(file.digest)
            yield file


def _long_lines(file: File) -> set[str]:
    return {line.strip() for line in file.text.splitlines() if len(line.strip()) >= LONG_LINE}
