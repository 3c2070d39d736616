"""Laws of identity: models, machines and prompts are what their names say, and different names differ."""

from __future__ import annotations

import datetime as dt
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bridge.evidence.bundled import DIGESTS, bundled, bundled_part, known_weights
from bridge.evidence.laws.law import ALL, MODELLED, PROMPTED, law
from bridge.evidence.parts import Identity
from bridge.evidence.report_index import STOCK_LOOP, ReportIndex

_EMPTY = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
_NOTHING = re.compile(
    r"[\W_]*|(?:n/?a|none|null|nil|unknown|undefined|todo|tbd|test|localhost\.?)", re.IGNORECASE
)
_PATH = re.compile(r"[./~\\]|[A-Za-z]:[/\\]")
_BILLIONS = re.compile(r"(?<![A-Za-z0-9.])(?<!\d_)(\d{1,4}(?:\.\d)?)[bB](?![A-Za-z0-9])")
# Such a name tells the parameters that a token uses, and the number of experts.
EXPERTS = re.compile(r"(?<![A-Za-z0-9.])\d{1,4}[eE](?![A-Za-z0-9])")
_VERSION = re.compile(r"v?\d+[0-9A-Za-z]*(?:[.+!-][0-9A-Za-z]+)*\+?|not installed")
_MOST_CORES = 4096
# Macs without Apple's chips have Intel's; a virtual one may not say more than its architecture.
_OTHER_MAC = re.compile("Intel|arm64|x86_64|i386|VirtualApple|Virtual", re.IGNORECASE)
# No processor multiplies so fast for each of its cores, matrix units and all.
_GFLOPS, _FULL = 2000.0, 100
_FIRST_YEAR, _LAST_YEAR = 2024, 2090
# No machine that runs MLX has less memory.
_LEAST_MEMORY = 1 << 28
# No digest of 64 digits has so few different ones: chance gives that less than once in 2^100.
_DIGITS = 6


@law(
    "IDENTITY_DOUBTFUL", MODELLED, "models.id models.weights models.config models.tokenizer",
    "a bundled model has its known digests, and its weights go by its name or by a path",
)  # fmt: skip
def bundled_models(index: ReportIndex) -> Iterator[str]:
    for model in index.report.models:
        known = bundled()["models"].get(model.id, {}).get(model.role) or {}
        for field in DIGESTS:
            if field in known and getattr(model, field) != known[field]:
                yield f"the {field} of {model.id} ({model.role}) is not that of the bundled model"
        name = known_weights().get(model.weights)
        if name is not None and model.id != name and not _PATH.match(model.id):
            yield f"{model.id} ({model.role}) has the weights of the bundled model {name}"


@law(
    "IDENTITY_DOUBTFUL", MODELLED,
    "models.architecture models.layers models.parameters models.stored_dtypes models.quantization",
    "a bundled model has its known architecture, layers, parameters and stored types",
)  # fmt: skip
def facts_of_bundled_models(index: ReportIndex) -> Iterator[str]:
    for model in index.report.models:
        for field, value in bundled_part(model).get("facts", {}).items():
            told = getattr(model, field, value)
            if told != value:
                yield f"{model.id} ({model.role}) has {field} {told!r}; the bundled model has {value!r}"


@law(
    "IDENTITY_DOUBTFUL", MODELLED, "models.id models.parameters",
    "a model has about as many parameters as its name says",
)  # fmt: skip
def size_in_the_name(index: ReportIndex) -> Iterator[str]:
    for model in index.report.models:
        size = _size_of_the_name(model)
        count = getattr(model, "parameters", None)
        if (
            model.role == "target"
            and size is not None
            and isinstance(count, int)
            and not isinstance(count, bool)
        ):
            # A quantized model's values are packed, up to sixteen to a number that counts as one parameter.
            least = size / 32 if model.quantization else size / 2
            most = math.inf if EXPERTS.search(model.id) else 2 * size
            if not least <= count <= most:
                yield f"{model.id} has {count} parameters; its name says {size:g}"


def least_of_the_name(model: Any) -> int | None:
    """Return the fewest parameters that a model's name allows; None if it tells no size, or that of experts."""
    size = _size_of_the_name(model)
    name = model.id.rpartition("/")[2]
    return int(size / 2) if size is not None and not model.quantization and not EXPERTS.search(name) else None


def _size_of_the_name(model: Any) -> float | None:
    """Return the number of parameters that a model's name tells; None if it tells none."""
    sizes = _BILLIONS.findall(model.id.rpartition("/")[2])
    return max(float(size) * 1e9 for size in sizes) if sizes else None


@law(
    "IDENTITY_DOUBTFUL", MODELLED, "models.role models.weights models.config",
    "each role has one model, and no two models have the same weights",
)  # fmt: skip
def one_model_per_role(index: ReportIndex) -> Iterator[str]:
    for role, times in Counter(model.role for model in index.report.models).items():
        if times > 1:
            yield f"{times} models are the {role}"
    for digest, times in Counter(model.weights for model in index.report.models).items():
        if times > 1:
            yield f"{times} models have the weights {digest[:19]}..."


@law(
    "IDENTITY_DOUBTFUL", ALL, "models identity.code prompts.sha256",
    "no digest is that of nothing, and no two fields have the same digest",
)  # fmt: skip
def digests_of_something(index: ReportIndex) -> Iterator[str]:
    told = [("the code", index.report.identity.code.digest)]
    for model in getattr(index.report, "models", []):
        fields = [(name, getattr(model, name)) for name in ("weights", "config", "tokenizer")]
        own = [digest for _, digest in fields if digest]
        if len({*own}) != len(own):
            yield f"weights, config and tokenizer of {model.id} have the same digest"
        told += [(f"the {name} of {model.id}", digest) for name, digest in fields if digest]
    for what, digest in told:
        if digest == _EMPTY or len({*digest.partition(":")[2]}) <= _DIGITS:
            yield f"the digest of {what} is that of nothing"


@law(
    "IDENTITY_DOUBTFUL", ALL, "identity created_at",
    "host, system, chip, device and versions are named and consistent, and memory, cores and date are possible",
)  # fmt: skip
def a_real_machine(index: ReportIndex) -> Iterator[str]:
    identity = index.report.identity
    for field in ("host", "os", "chip", "device"):
        if field != "host" and _NOTHING.fullmatch(getattr(identity, field).strip()):
            yield f"identity.{field} is {getattr(identity, field)!r}"
    if not identity.host.strip():
        yield "identity.host is blank"
    if _NOTHING.fullmatch(identity.code.version.strip()):
        yield f"identity.code.version is {identity.code.version!r}"
    if not identity.versions.get("mlx"):
        yield "identity.versions does not name mlx"
    if identity.memory_bytes is not None and identity.memory_bytes < _LEAST_MEMORY:
        yield f"a machine of {identity.memory_bytes} bytes of memory"
    yield from _odd_machine(identity)
    try:
        at = dt.datetime.strptime(index.report.created_at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=dt.UTC)
    except ValueError:
        yield f"created_at is {index.report.created_at}, which is not a time"
        return
    if not _FIRST_YEAR <= at.year <= _LAST_YEAR:
        yield f"created_at is {index.report.created_at}"


def _odd_figures(identity: Identity) -> Iterator[str]:
    """Yield which figures no machine has."""
    gflops, cores = (identity.blas or {}).get("gflops"), identity.cores or _MOST_CORES
    if isinstance(gflops, int | float) and not 0 < gflops <= _GFLOPS * cores:
        yield f"identity.blas.gflops is {gflops:g}, on {cores} cores"
    percent = (identity.power or {}).get("percent")
    if isinstance(percent, int | float) and not 0 <= percent <= _FULL:
        yield f"identity.power.percent is {percent:g}"


def _odd_machine(identity: Identity) -> Iterator[str]:
    """Yield what of a machine cannot be true of one machine."""
    apple, mac = identity.chip.startswith("Apple "), "macOS" in identity.os or "Darwin" in identity.os
    if apple and not mac:
        yield f"identity.chip is {identity.chip!r}, and identity.os is {identity.os!r}"
    if mac and not apple and not _OTHER_MAC.search(identity.chip):
        yield f"identity.chip is {identity.chip!r}, which no Mac has"
    if apple and "x86_64" in identity.os:
        yield f"identity.chip is {identity.chip!r}, and identity.os is {identity.os!r}"
    yield from _odd_figures(identity)
    if identity.device.partition(":")[0] not in ("cpu", "gpu"):
        yield f"identity.device is {identity.device!r}; cpu and gpu are the devices of MLX"
    if identity.cores is not None and identity.cores > _MOST_CORES:
        yield f"identity.cores is {identity.cores}"
    for name, version in identity.versions.items():
        if version is not None and not _VERSION.fullmatch(version.strip()):
            yield f"identity.versions.{name} is {version[:60]!r}, which is not a version"
    own = identity.versions.get("kakeya_bridge")
    if own is not None and own != identity.code.version:
        yield f"identity.versions.kakeya_bridge is {own}, and identity.code.version {identity.code.version}"


@law(
    "IDENTITY_DOUBTFUL", MODELLED, "config.model models.id",
    "the configured model is the described one",
)  # fmt: skip
def configured_model(index: ReportIndex) -> Iterator[str]:
    asked = getattr(index.report.config, "model", None)
    target = index.target
    if not isinstance(asked, str) or target is None or asked == target.id:
        return
    known = known_weights().get(target.weights)
    if asked in bundled()["models"] or (known is not None and not _PATH.match(asked)):
        yield f"{asked} is configured, and {target.id} is described"


@law(
    "PROMPT_REPEATED", PROMPTED, "prompts.text prompts.sha256",
    "prompts differ by more than punctuation and invisible characters",
)  # fmt: skip
def prompts_differ(index: ReportIndex) -> Iterator[str]:
    plain = Counter(_letters(prompt.text) for prompt in index.all_prompts if prompt.text is not None)
    exact = {" ".join(prompt.text.split()) for prompt in index.all_prompts if prompt.text is not None}
    blanks = Counter(map(_letters, exact))
    for letters, times in plain.items():
        if times > 1 and blanks[letters] > 1:
            yield f"{times} prompts differ in punctuation alone: {letters[:60]!r}"


# Operators between two numbers, which make another question.
_SUM = re.compile(r"(?<=\d)\s*[-*/%^]\s*(?=\d)")
# Marks on letters of Latin, Greek and Cyrillic are accents; on those behind them, vowels. Selectors show nothing.
_VOWELS, _SELECTORS = 0x0590, ("\ufe00", "\ufe0f")


def _letters(text: str) -> str:
    """Return what a text says: without punctuation, accents, blanks and invisible characters."""
    plain = _SUM.sub(
        lambda found: chr(0x2200 + ord(found[0].strip())), unicodedata.normalize("NFKD", text)
    ).casefold()
    kept, before = [], ""
    for letter in plain:
        kind = unicodedata.category(letter)
        if letter.isalnum() or kind in ("Sm", "So", "Sc"):
            kept.append(letter)
            before = letter
        elif kind == "Mc" or (
            kind == "Mn" and before > chr(_VOWELS) and not _SELECTORS[0] <= letter <= _SELECTORS[1]
        ):
            kept.append(letter)
    return "".join(kept) or text


@law(
    "IDENTITY_DOUBTFUL", PROMPTED, "workloads.source prompts.sha256 prompts.workload",
    "bundled prompts, by name or by digest, are the first ones of a bundled set, in its order",
)  # fmt: skip
def bundled_prompts(index: ReportIndex) -> Iterator[str]:
    sets = bundled()["prompts"].values()
    everyone = {digest for some in sets for digest in some}
    for name, told in index.workloads.items():
        digests = [prompt.sha256 for prompt in index.all_prompts if prompt.workload == name]
        ours = [digest for digest in digests if digest in everyone]
        firsts = any(known[: len(digests)] == digests for known in sets)
        if digests and not firsts and (told.source == "bundled" or len(ours) * 2 > len(digests)):
            yield f"the prompts of {name} are not the first {len(digests)} of a bundled set"
        elif ours and firsts and told.source != "bundled" and not _PATH.search(told.source):
            yield f"the prompts of {name} are bundled ones, and are said to be from {told.source[:60]!r}"


@law(
    "IDENTITY_DOUBTFUL", MODELLED, "models.role models.weights",
    "a bundled model goes with the parts of its own pair",
)  # fmt: skip
def one_bundled_pair(index: ReportIndex) -> Iterator[str]:
    names = {
        model.role: name for model in index.report.models if (name := known_weights().get(model.weights))
    }
    if len({*names.values()}) > 1:
        shown = ", ".join(f"{role} of {name}" for role, name in sorted(names.items()))
        yield f"parts of different bundled models are described together: {shown}"


@law(
    "IDENTITY_DOUBTFUL", PROMPTED, "identity.versions.mlx_lm arms.loop",
    "where mlx-lm decodes, its version is named",
)  # fmt: skip
def stock_loops_have_a_version(index: ReportIndex) -> Iterator[str]:
    stock = [arm.name for arm in index.all_arms if arm.loop == STOCK_LOOP]
    version = index.report.identity.versions.get("mlx_lm")
    if (
        stock
        and "mlx_lm" in index.report.identity.versions
        and (version is None or not version[:1].isdigit())
    ):
        yield f"{stock[0]} is decoded by mlx-lm, whose version is {version!r}"
