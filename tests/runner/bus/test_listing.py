import subprocess

import pytest

from bridge.bus import objects
from bridge.errors import InfrastructureError
from bridge.system.git import Git
from runner.bus.listing import Listing


@pytest.fixture(params=["sha1", "sha256"])
def bus(request, tmp_path):
    """A bus with one request branch, in either format of names; returns its folder and the branch's commit."""
    folder = tmp_path / "bus.git"
    made = subprocess.run(
        ["git", "init", "--quiet", "--bare", f"--object-format={request.param}", str(folder)], check=False
    )
    if made.returncode:
        pytest.skip("this git knows one format alone")
    git = Git.isolated(folder)
    tree = git.text("mktree", stdin="")
    commit = objects.commit(git, tree, [], "x\n", objects.Identity("A", "a@example.invalid"))
    git("update-ref", "refs/heads/mac-bridge/noop-1", commit)
    return folder, commit


def test_a_bus_that_names_objects_by_sha256_is_refused_in_plain_words(bus, tmp_path):
    folder, commit = bus
    store = tmp_path / "store.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(store)], check=True)
    listing = Listing(Git.isolated(store), str(folder), ("mac-bridge/*",))

    if len(commit) == 64:
        with pytest.raises(
            InfrastructureError, match=r"SHA-256, which is not supported.*--object-format=sha1"
        ):
            listing.read()
    else:
        assert listing.read()
        assert listing.tips == {"mac-bridge/noop-1": commit}
