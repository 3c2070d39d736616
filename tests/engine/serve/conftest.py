import pytest

from tests.engine.serve.world import backends, serving


def pytest_generate_tests(metafunc):
    """Run the tests of files with ``ON_BOTH_BACKENDS`` against both backends. Those over torch are long."""
    if getattr(metafunc.module, "ON_BOTH_BACKENDS", False) and "server" in metafunc.fixturenames:
        metafunc.parametrize("server", backends(), indirect=True, scope="session")


@pytest.fixture(scope="session")
def server(tmp_path_factory, request):
    """A server of both bundled models, one for all files that only ask it: each start takes three seconds."""
    folder = tmp_path_factory.mktemp("server")
    backend = getattr(request, "param", "mlx")
    with serving(folder, "--backend", backend, "--model", "tiny", "--model", "tiny-hybrid") as running:
        # A stream that waits for its model cannot be refused by its status.
        for name in ("tiny", "tiny-hybrid"):
            body = {"model": name, "prompt": "a", "max_tokens": 1}
            assert running.http.post("/v1/completions", json=body).status_code == 200
        yield running
