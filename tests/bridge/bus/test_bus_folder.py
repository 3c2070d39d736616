"""`.kakeya/` of the bus's default branch is found in every kind of clone, and an older reading drops nothing."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bridge.bus.folder import bus_folder
from bridge.bus.folder.bus_folder import BusFolder, read_bus_folder
from bridge.bus.known.sightings import GRACE_S
from bridge.common import limits
from bridge.system.git import Git
from tests.conftest import HttpBus

RunGit = Callable[..., str]
KEY = b"a key\n"


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    bus_folder.forget()
    yield
    bus_folder.forget()


def read(folder: Path, remote: str = "origin") -> BusFolder:
    """Read the folder as a new process does."""
    bus_folder.forget()
    return read_bus_folder(Git.of_user(folder), remote)


@pytest.fixture
def commit(bus: Path, git: RunGit, tmp_path: Path) -> Callable[..., str]:
    """Commit files below `.kakeya/` to a branch of the bus, from a clone of the maintainer's."""
    work = tmp_path / "maintainer"

    def add(files: dict[str, bytes | None], branch: str = "main") -> str:
        if not work.exists():
            git(tmp_path, "clone", "--quiet", str(bus), str(work))
        git(work, "fetch", "--quiet", "origin")
        git(work, "checkout", "--quiet", "-B", branch)
        for path, content in files.items():
            target = work / ".kakeya" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                target.unlink()
            else:
                target.write_bytes(content)
        git(work, "add", "--all")
        git(work, "commit", "--quiet", "--allow-empty", "-m", "Change it")
        git(work, "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}")
        return git(work, "rev-parse", "HEAD")

    return add


def init(folder: Path, git: RunGit, address: str, remote: str = "origin") -> Path:
    git(folder.parent, "init", "--quiet", str(folder))
    git(folder, "remote", "add", remote, address)
    return folder


# How people and CI systems make a repository that knows the bus: commands of git, run beside HERE.
WAYS = {
    "clone": ["clone --quiet URL HERE"],
    "init": ["init --quiet HERE", "-C HERE remote add origin URL"],
    "checkout": [
        "init --quiet HERE",
        "-C HERE remote add origin URL",
        "-C HERE fetch --quiet --depth=1 origin +refs/heads/work:refs/remotes/origin/work",
        "-C HERE checkout --quiet --detach refs/remotes/origin/work",
    ],
    "relative": ["init --quiet HERE", "-C HERE remote add origin ../bus.git"],
    "bare": ["clone --quiet --bare URL HERE", "-C HERE update-ref -d refs/heads/main"],
    "mirror": ["clone --quiet --mirror URL HERE"],
    "shallow": ["clone --quiet --depth=1 URL HERE"],
    "single-branch": ["clone --quiet --single-branch --branch=work URL HERE"],
    "partial": ["clone --quiet --filter=tree:0 --no-checkout URL HERE"],
    "insteadOf": [
        "init --quiet HERE",
        "-C HERE remote add origin bus:x.git",
        "-C HERE config url.URL.insteadOf bus:x.git",
    ],
    "pushurl": ["clone --quiet URL HERE", "-C HERE config remote.origin.pushurl https://bus.invalid/x.git"],
}


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=() if how in ("init", "checkout") else pytest.mark.long) for how in WAYS]
)
def test_the_folder_is_found_in_each_kind_of_clone(
    how: str, bus: Path, git: RunGit, commit: Callable[..., str], tmp_path: Path
) -> None:
    git(bus, "config", "uploadpack.allowFilter", "true")
    git(bus, "branch", "work", "main")
    clone = tmp_path / "here"
    for command in WAYS[how]:
        git(tmp_path, *command.replace("URL", f"file://{bus}").replace("HERE", str(clone)).split())
    before = git(clone, "for-each-ref"), git(clone, "count-objects")
    tip = commit({"runner.pub": KEY, "presets/mine.yaml": b"name: mine\n", "notes.txt": b"not read"})
    seen = read(clone)
    assert (seen.branch, seen.commit, seen.problem) == ("origin/main", tip, "")
    assert seen.files == {"runner.pub": KEY, "presets/mine.yaml": b"name: mine\n"}
    # Nothing is fetched into the clone, so a shallow one stays as it is and a small one stays small.
    assert (git(clone, "for-each-ref"), git(clone, "count-objects")) == before
    shutil.move(bus, bus.with_name("away.git"))
    gone = read(clone)
    assert gone.files == seen.files
    assert "does not answer" in gone.source("runner.pub")


def test_a_worktree_reads_it_too_and_shares_what_was_seen(
    clone: Path, bus: Path, git: RunGit, commit: Callable[..., str], tmp_path: Path
) -> None:
    commit({"runner.pub": KEY})
    git(clone, "worktree", "add", "--quiet", "--detach", str(tmp_path / "tree"))
    assert read(tmp_path / "tree").files == {"runner.pub": KEY}
    shutil.move(bus, bus.with_name("away.git"))
    assert read(clone).files == {"runner.pub": KEY}


def test_the_remote_names_its_default_branch(
    clone: Path, bus: Path, git: RunGit, commit: Callable[..., str]
) -> None:
    commit({"runner.pub": b"of main"})
    commit({"runner.pub": b"of trunk"}, branch="trunk")
    assert read(clone).files == {"runner.pub": b"of main"}
    git(bus, "symbolic-ref", "HEAD", "refs/heads/trunk")
    # Git noted another default branch when it cloned.
    assert (read(clone).branch, read(clone).files) == ("origin/trunk", {"runner.pub": b"of trunk"})
    git(clone, "remote", "rename", "origin", "shared")
    assert read(clone, "shared").branch == "shared/trunk"
    assert read(clone, str(bus)).files == {"runner.pub": b"of trunk"}


def test_a_request_branch_named_like_the_head_does_not_count(
    clone: Path, bus: Path, git: RunGit, commit: Callable[..., str]
) -> None:
    for branch in ("HEAD", "a/HEAD", "origin/main", "refs/heads/main", "heads/main"):
        commit({"runner.pub": b"a stranger's"}, branch="other")
        oid = git(bus, "rev-parse", "other")
        git(bus, "update-ref", f"refs/heads/{branch}", oid)
    git(bus, "update-ref", "refs/tags/HEAD", oid)
    assert read(clone).files == {}


def test_a_bus_without_a_default_branch_has_no_folder(
    tmp_path: Path, git: RunGit, bus: Path, clone: Path
) -> None:
    git(tmp_path, "init", "--quiet", "--bare", "empty.git")
    assert read(init(tmp_path / "a", git, str(tmp_path / "empty.git"))) == BusFolder()
    git(bus, "symbolic-ref", "HEAD", "refs/heads/unborn")
    assert read(clone) == BusFolder()
    tip = git(bus, "rev-parse", "main")
    (bus / "HEAD").write_text(f"{tip}\n")
    assert read(clone).branch == "origin/HEAD"


def test_without_the_remote_there_is_no_folder(clone: Path) -> None:
    assert read(clone, "nowhere") == BusFolder()


def test_files_beyond_the_limits_are_named_and_not_read(clone: Path, commit: Callable[..., str]) -> None:
    commit({
        "runner.pub": KEY, "presets/large.yaml": b"#" * (limits.BUS_FILE_BYTES + 1),
        **{f"presets/p{i:02}.yaml": b"#" * limits.BUS_FILE_BYTES for i in range(17)},
    })  # fmt: skip
    seen = read(clone)
    assert seen.files["runner.pub"] == KEY
    assert set(seen.unread) == {"presets/large.yaml", "presets/p15.yaml", "presets/p16.yaml"}
    assert "larger than" in seen.unread["presets/large.yaml"]


def test_links_and_folders_are_not_read(clone: Path, commit: Callable[..., str], tmp_path: Path) -> None:
    commit({"presets/a.yaml": b"a", "presets/b.yaml/c.yaml": b"c"})
    (tmp_path / "maintainer" / ".kakeya" / "runner.pub").symlink_to("/etc/passwd")
    commit({})
    assert set(read(clone).files) == {"presets/a.yaml"}


def test_a_damaged_copy_is_ignored(clone: Path, bus: Path, commit: Callable[..., str]) -> None:
    commit({"runner.pub": KEY})
    assert read(clone).files
    (copy,) = (clone / ".git").glob("kakeya-bus-*.json")
    for content in ("", "{}", "[" * 100_000, '{"branch": 1}'):
        copy.write_text(content)
        assert read(clone).files == {"runner.pub": KEY}
    shutil.move(bus, bus.with_name("away.git"))
    copy.write_text("{}")
    assert read(clone).files == {}


def test_a_reading_that_lags_drops_no_pin(
    clone: Path, bus: Path, git: RunGit, commit: Callable[..., str], http_bus: HttpBus
) -> None:
    git(clone, "remote", "set-url", "origin", http_bus.url)
    old = git(bus, "rev-parse", "main")
    new = commit({"runner.pub": KEY})
    assert read(clone).files == {"runner.pub": KEY}
    git(bus, "update-ref", "refs/heads/main", old)
    assert (read(clone).commit, read(clone).files) == (new, {"runner.pub": KEY})
    # After a while every copy of the bus has it, so the branch was set back.
    (copy,) = (clone / ".git").glob("kakeya-bus-*.json")
    stored = json.loads(copy.read_text())
    copy.write_text(json.dumps({**stored, "seen_at": stored["seen_at"] - GRACE_S}))
    assert (read(clone).commit, read(clone).files) == (old, {})


def test_a_push_from_this_clone_counts_before_a_copy_of_the_bus_shows_it(
    clone: Path, bus: Path, git: RunGit, http_bus: HttpBus
) -> None:
    git(clone, "remote", "set-url", "origin", http_bus.url)
    old = git(bus, "rev-parse", "main")
    (clone / ".kakeya").mkdir()
    (clone / ".kakeya" / "runner.pub").write_bytes(KEY)
    git(clone, "add", ".kakeya")
    git(clone, "commit", "--quiet", "-m", "Pin the key")
    git(clone, "push", "--quiet", "origin", "HEAD:main")
    git(bus, "update-ref", "refs/heads/main", old)
    assert read(clone).files == {"runner.pub": KEY}
