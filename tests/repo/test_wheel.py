"""The wheel, built and used outside the repository, where nothing of it can stand in for what is missing."""

import email
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_SHIPPED = re.compile(r"tests?|test_.*|conftest\.py|.*\.pyc")

# Imports every module of `bridge` and `runner` but those of an extra, and the top of `engine`, with MLX, NumPy and the
# MCP SDK out of reach. The environment's packages stay importable; this checkout, to which an editable install
# points, does not.
IMPORT_ALL = """
import importlib, json, pkgutil, sys
wheel, checkout = sys.argv[1:]

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"mlx", "mlx_lm", "numpy", "mcp", "mcp_types", "anyio", "starlette", "uvicorn"}:
            raise ModuleNotFoundError(f"{name} is not part of the base install", name=name)

sys.meta_path.insert(0, Blocked())
sys.path[:] = [wheel] + [entry for entry in sys.path if entry != checkout]
places = {}
SERVERS = ("bridge.common.listening", "bridge.mcp.", "bridge.web.")
for name in ("bridge", "runner", "engine", "engine.cli", "presets"):
    places[name] = importlib.import_module(name).__file__
for name in ("bridge", "runner"):
    for found in pkgutil.walk_packages(sys.modules[name].__path__, name + "."):
        if not found.name.endswith(".__main__") and not found.name.startswith(SERVERS):
            places[found.name] = importlib.import_module(found.name).__file__
print(json.dumps(places))
"""

LOAD_PRESETS = """
import json, sys
sys.path[:] = [sys.argv[1]] + [entry for entry in sys.path if entry != sys.argv[2]]
from bridge.presets import load_presets
print(json.dumps(list(load_presets())))
"""


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def metadata(unpacked):
    (path,) = unpacked.glob("*.dist-info/METADATA")
    return email.message_from_bytes(path.read_bytes())


def run(script, unpacked, cwd):
    argv = [sys.executable, "-I", "-c", script, str(unpacked), str(ROOT)]
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
def test_base_install_imports_without_mlx_and_numpy(unpacked, tmp_path):
    places = run(IMPORT_ALL, unpacked, tmp_path)
    assert {"bridge.cli", "runner.cli", "engine.cli"} <= set(places)
    assert [name for name, place in places.items() if not Path(place).is_relative_to(unpacked)] == []


@pytest.mark.long
def test_presets_are_in_it_and_load_from_it(unpacked, tmp_path):
    shipped = {path.name for path in (unpacked / "presets").glob("*.yaml")}
    assert shipped == {path.name for path in (ROOT / "presets").glob("*.yaml")}
    loaded = run(LOAD_PRESETS, unpacked, tmp_path)
    assert {f"{name}.yaml" for name in loaded} == shipped - {"_fragments.yaml"}


def test_only_our_packages_and_manual_pages_are_in_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        paths = [Path(name) for name in archive.namelist()]
    tops = {path.parts[0] for path in paths if not path.parts[0].endswith((".dist-info", ".data"))}
    assert tops == {"bridge", "runner", "engine", "presets"}
    data = [path for path in paths if path.parts[0].endswith(".data")]
    assert [path for path in data if path.parts[1:-1] != ("data", "share", "man", "man1")] == []
    assert [path for path in paths if any(NOT_SHIPPED.fullmatch(part) for part in path.parts)] == []


def test_what_the_code_reads_beside_it_is_in_it(unpacked):
    """All but the bundled weights, a package of their own."""
    beside = {
        path.relative_to(ROOT)
        for top in ("bridge", "runner", "engine")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    }
    beside = {path for path in beside if not path.is_relative_to("engine/models/data")}
    assert {Path("bridge/schemas/report-3.json"), Path("bridge/show/forms/style.css")} <= beside
    differ = [
        path
        for path in beside
        if not (unpacked / path).is_file() or (unpacked / path).read_bytes() != (ROOT / path).read_bytes()
    ]
    assert differ == []


def test_types_are_announced(unpacked):
    packages = ("bridge", "runner", "engine")
    assert [name for name in packages if not (unpacked / name / "py.typed").exists()] == []


def test_licence_is_in_it(unpacked, metadata):
    assert metadata["License-Expression"] == "Apache-2.0"
    (path,) = unpacked.glob("*.dist-info/licenses/LICENSE")
    assert path.read_text() == (ROOT / "LICENSE").read_text()


def test_base_install_asks_for_neither_mlx_nor_numpy(metadata):
    asked = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert {re.match(r"[\w-]+", line)[0] for line in asked} & {"mlx", "mlx-lm", "numpy", "torch"} == set()


def test_the_programs_are_installed(unpacked):
    (path,) = unpacked.glob("*.dist-info/entry_points.txt")
    assert re.findall(r"^[\w-]+ = .*$", path.read_text(), re.MULTILINE) == [
        "kakeya = bridge.cli:main",
        "kakeya-bridge = bridge.cli:main",
        "kakeya-engine = engine.cli:main",
        "kakeya-mlx-server = engine.cli.mlx_server:main",
        "kakeya-runner = runner.cli:main",
        "kakeya-sidecar = engine.cli.sidecar:main_on_torch",
        "kakeya-sidecar-mlx = engine.cli.sidecar:main",
    ]
