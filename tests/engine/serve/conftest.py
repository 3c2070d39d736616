import pytest

from tests.engine.serve.world import serving


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of both bundled models."""
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, "--model", "tiny", "--model", "tiny-hybrid") as running:
        yield running
