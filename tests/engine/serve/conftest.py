import pytest

from tests.engine.serve.world import serving


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A server of both bundled models, one for all files that only ask it: each start takes three seconds."""
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, "--model", "tiny", "--model", "tiny-hybrid") as running:
        yield running
