"""What ``python -m training`` refuses."""

import pytest

from engine.errors import BadInput
from training.cli import cli


@pytest.mark.parametrize("argv", [["tiny"], ["tiny-chat", "--start", "."]])
def test_a_run_for_retrieval_starts_from_a_target_of_sources(argv, tmp_path):
    with pytest.raises(BadInput, match="--retrieval refines a target that learnt from sources"):
        cli(["target", *argv, "--retrieval", "--out", str(tmp_path / "out")], standalone_mode=False)
    assert not (tmp_path / "out").exists()
