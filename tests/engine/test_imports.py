import ast
import importlib

import pytest

HEAVY = "import sys; print(sorted({'git', 'mlx', 'mlx_lm', 'numpy', 'pydantic', 'rich', 'runner'} & set(sys.modules)))"
OTHERS = "import sys; print(sorted(name for name in sys.modules if name.startswith('bridge.')))"


@pytest.mark.parametrize("statement", ["import engine", "import engine.cli", "import engine.blas"])
def test_importing_loads_nothing_heavy(python, statement):
    done = python("-c", f"{statement}; {HEAVY}")
    assert done.stdout.strip() == "[]", done.stderr


def test_all_that_it_loads_of_the_bridge_is_what_they_share(python):
    loaded = python("-c", f"import engine.cli; {OTHERS}").stdout
    names = ast.literal_eval(loaded)
    assert "bridge.common" in names
    assert [name for name in names if not name.startswith(("bridge.common", "bridge.reports"))] == []


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


ABSENT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"mlx", "mlx_lm", "numpy", "huggingface_hub", "transformers", "tokenizers"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from engine.cli import main
"""


@pytest.mark.parametrize("command", [["models"], ["codec", "rd"], ["generate", "--prompt", "x"]])
def test_a_client_without_the_engines_packages_is_told_how_to_install_them(python, command):
    done = python("-c", f"{ABSENT}main({command!r})")

    assert done.returncode == 1
    assert "pip install" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_of_ours_that_is_absent_is_a_bug(python):
    broken = "from engine import cli; cli.COMMANDS['nowhere'] = 'Is absent.'; cli.main(['nowhere'])"

    done = python("-c", broken)

    assert done.returncode == 70
    assert "this is a bug" in done.stderr


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


@pytest.mark.long
def test_mlx_lm_comes_after_the_preload(python):
    done = python("-c", "import engine.lm; from engine import blas; print(blas.preload().reason)")
    assert "before the engine" not in done.stdout
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_torch_is_not_loaded_where_nobody_asked_for_it(python):
    """It takes longer to load than all the rest, at each start of a program."""
    pytest.importorskip("torch")
    code = "import sys, engine.lm; print('torch' in sys.modules); import torch; print(torch.ones(1).item())"
    assert python("-c", code).stdout.split() == ["False", "1.0"]


@pytest.mark.long
def test_what_trains_with_torch_comes_before_mlx_lm(python):
    pytest.importorskip("torch")
    both = "import engine.train.with_torch as t, engine.lm; print(t.transformers.Qwen3ForCausalLM.__name__)"
    assert python("-c", both).stdout.split() == ["Qwen3ForCausalLM"]
    late = python("-c", "import engine.lm, engine.train.with_torch")
    assert "import engine.train.with_torch before it" in late.stderr


def test_the_sources_of_a_rate_distortion_table_need_no_mlx(python):
    code = "import engine.codec.spec, engine.evals.rate_distortion.sources, sys; print('mlx' in sys.modules)"
    assert python("-c", code).stdout.strip() == "False"


@pytest.mark.parametrize("package", ["engine.cache", "engine.models"])
def test_public_names_are_sorted_and_there(package):
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__)
    assert all(getattr(module, name) is not None for name in module.__all__)
    with pytest.raises(AttributeError):
        module.nonsense  # noqa: B018
