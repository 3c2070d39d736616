import ast
import importlib

import pytest

HEAVY = "import sys; print(sorted({'mlx', 'mlx_lm', 'numpy', 'rich', 'bridge', 'runner'} & set(sys.modules)))"


@pytest.mark.parametrize("statement", ["import engine", "import engine.cli", "import engine.blas"])
def test_importing_loads_nothing_heavy(python, statement):
    done = python("-c", f"{statement}; {HEAVY}")
    assert done.stdout.strip() == "[]", done.stderr


def test_help_loads_nothing_heavy(python):
    code = f"import atexit; atexit.register(lambda: exec({HEAVY!r})); from engine.cli import main; "
    done = python("-c", code + "main(['--help'])")
    assert done.returncode == 0
    assert "probe" in done.stdout
    assert done.stdout.strip().endswith("[]")


@pytest.mark.parametrize("command", [["codec", "rd"], ["bench", "spec"], ["bench", "verify-l"]])
def test_commands_help_without_mlx(python, command):
    code = f"import atexit; atexit.register(lambda: exec({HEAVY!r})); from engine.cli import main; "
    done = python("-c", code + f"main({[*command, '--help']!r})")
    assert done.returncode == 0
    assert done.stdout.strip().endswith("[]")


def test_mlx_has_one_door(engine_folder):
    """Imported past the door, MLX would bind to its own slow BLAS."""
    past = []
    for path in engine_folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            past += [(path.name, name) for name in names if name.split(".")[0] in {"mlx", "mlx_lm"}]
    assert {name for name, _ in past} == {"mx.py", "lm.py"}


def test_mlx_lm_comes_after_the_preload(python):
    done = python("-c", "import engine.lm; from engine import blas; print(blas.preload().reason)")
    assert "before the engine" not in done.stdout
    assert done.returncode == 0, done.stderr


def test_the_twin_needs_no_mlx(python):
    code = "import engine.codec.twin.voronoi, engine.evals.rate_distortion.sources, sys; print('mlx' in sys.modules)"
    assert python("-c", code).stdout.strip() == "False"


@pytest.mark.parametrize("package", ["engine.codec", "engine.cache", "engine.models"])
def test_public_names_are_sorted_and_there(package):
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__)
    assert all(getattr(module, name) is not None for name in module.__all__)
    with pytest.raises(AttributeError):
        module.nonsense  # noqa: B018
