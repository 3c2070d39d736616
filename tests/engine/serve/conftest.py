import importlib.util

import pytest

from tests.engine.serve.world import serving

TORCH = importlib.util.find_spec("torch") is not None


def pytest_generate_tests(metafunc):
    """Run the tests of files with ``BACKENDS`` against both backends. Those over torch are long."""
    backends = getattr(metafunc.module, "BACKENDS", None)
    if backends is None or "server" not in metafunc.fixturenames:
        return
    marks = [pytest.mark.long, pytest.mark.skipif(not TORCH, reason="torch is not installed")]
    params = [name if name == "mlx" else pytest.param(name, marks=marks) for name in backends]
    metafunc.parametrize("server", params, indirect=True, scope="session")


@pytest.fixture(scope="session")
def server(tmp_path_factory, request):
    """A server of both bundled models, one for all files that only ask it: each start takes three seconds."""
    folder = tmp_path_factory.mktemp("server")
    backend = getattr(request, "param", "mlx")
    with serving(folder, "--backend", backend, "--model", "tiny", "--model", "tiny-hybrid") as running:
        yield running
