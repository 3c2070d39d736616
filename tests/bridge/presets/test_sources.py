"""A requester's presets come from four places, of which the first that has a name counts."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from bridge.bus.folder import bus_folder
from bridge.client import Client
from bridge.common import limits
from bridge.errors import PresetError
from bridge.presets import find_preset, find_presets, load_presets
from bridge.presets.sources import SHARED, write_preset
from bridge.system.git import Git

RunGit = Callable[..., str]
STEPS = [{"argv": ["/bin/echo"]}]


def definition(name: str, description: str, **more: object) -> str:
    keys = {"name": name, "description": description, "code": "installed", "timeout_s": 9, "steps": STEPS}
    return yaml.safe_dump({**keys, **more})


def put(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    bus_folder.forget()
    yield
    bus_folder.forget()


@pytest.fixture
def shared(clone: Path, bus: Path, tmp_path: Path, git: RunGit) -> Callable[..., None]:
    """Commit presets to the bus's default branch."""
    work = tmp_path / "owner"
    git(tmp_path, "clone", "--quiet", str(bus), str(work))

    def commit(**files: str) -> None:
        put(work / SHARED, **files)
        git(work, "add", "--all")
        git(work, "commit", "--quiet", "-m", "Share presets")
        git(work, "push", "--quiet", "origin", "HEAD:main")
        bus_folder.forget()

    return commit


def test_the_first_place_that_has_a_name_counts(
    clone: Path, tmp_path: Path, shared: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("a", "b", "c", "noop")
    shared(**{name: definition(name, "of the bus") for name in names})
    put(clone / SHARED, **{name: definition(name, "of the repository") for name in names[:2]})
    monkeypatch.setenv("KAKEYA_PRESETS", str(put(tmp_path / "named", a=definition("a", "of the folder"))))
    presets = find_presets(Git.of_user(clone), "origin")
    assert {name: presets[name].description for name in names} == {
        "a": "of the folder", "b": "of the repository", "c": "of the bus", "noop": "of the bus",
    }  # fmt: skip
    assert [presets.sources[name] for name in names] == [
        str(tmp_path / "named"), SHARED, f"{SHARED} on origin/main", f"{SHARED} on origin/main",
    ]  # fmt: skip
    # A client's own argument stands for the variable.
    own = put(tmp_path / "own", a=definition("a", "of the argument"))
    assert Client(clone, presets=own).presets["a"].description == "of the argument"


def test_row_148_hostile_files_on_the_default_branch_stop_no_other_preset(
    clone: Path, shared: Callable[..., None]
) -> None:
    bomb = "x: &a [1]\n" + "\n".join(f"y{i}: &b{i} [{', '.join(['*a'] * 500)}]" for i in range(500))
    shared(
        good=definition("good", "works"), noop="name: [", other=definition("misnamed", "x"), bomb=bomb,
        large="#" * (limits.BUS_FILE_BYTES + 1), typo=definition("typo", "x", timeut_s=3),
    )  # fmt: skip
    presets = find_presets(Git.of_user(clone), "origin")
    assert presets["good"].description == "works"
    assert set(presets.broken) == {"noop", "other", "bomb", "large", "typo"}
    assert "noop" not in presets
    assert "larger than" in presets.broken["large"].message
    with pytest.raises(PresetError, match="cannot be used"):
        find_preset(presets, "noop")
    shared(**{f"many{i:03}": "x: 1" for i in range(300)}, huge="#" * 5_000_000)
    presets = find_presets(Git.of_user(clone), "origin")
    assert presets["good"].description == "works"
    assert len(presets.broken) <= limits.BUS_FILES
    # A place before it still decides.
    put(clone / SHARED, noop=definition("noop", "here"))
    assert find_presets(Git.of_user(clone), "origin")["noop"].description == "here"


def test_fragments_count_in_their_own_place_only(
    clone: Path, tmp_path: Path, shared: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(
        _fragments="mine: {timeout_s: 77}\n",
        a=definition("a", "x", use=["mine"]).replace("timeout_s: 9\n", ""),
    )
    put(clone / SHARED, b=definition("b", "x", use=["mine"]))
    presets = find_presets(Git.of_user(clone), "origin")
    assert presets["a"].timeout_s == 77
    assert "no fragment 'mine'" in presets.broken["b"].message


def test_without_a_repository_or_without_the_remote(
    clone: Path, bus: Path, shared: Callable[..., None]
) -> None:
    assert find_presets(None, "origin").keys() == load_presets().keys()
    shared(a=definition("a", "x"))
    assert "a" not in find_presets(Git.of_user(clone), "origin", ask=False)
    assert "a" in find_presets(Git.of_user(clone), "origin")
    bus.rename(bus.with_name("away.git"))
    bus_folder.forget()
    presets = find_presets(Git.of_user(clone), "origin")
    assert "a" in presets
    assert "last seen" in presets.notes[0]
    assert "a" in find_presets(Git.of_user(clone), "origin", ask=False)


@pytest.mark.parametrize("name", load_presets())
def test_a_written_preset_is_the_same_one(name: str, tmp_path: Path) -> None:
    preset = load_presets()[name]
    write_preset(preset, tmp_path)
    assert load_presets(tmp_path)[name].digest == preset.digest
