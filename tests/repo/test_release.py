"""What a release consists of: built twice from two folders under two clocks, checked, and named by its commit."""

from __future__ import annotations

import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.repo.programs import good, run
from tests.system import program

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not program("cc"), reason="no C compiler, which the second clock needs"),
]


@pytest.fixture(scope="module")
def clock(tmp_path_factory):
    """Return the variables under which a program lives two years later."""
    folder = tmp_path_factory.mktemp("clock")
    source = ROOT / "tests" / "runner" / "clock.c"
    good("cc", "-shared", "-fPIC", "-O1", "-o", folder / "clock.so", source, cwd=folder)
    (folder / "shift").write_bytes((2 * 365 * 86400).to_bytes(8, sys.byteorder))
    return {"LD_PRELOAD": str(folder / "clock.so"), "SHIFT_FILE": str(folder / "shift")}


@pytest.fixture(scope="module")
def release(tree, clock, tmp_path_factory):
    """Build twice: here and now, and in another folder, two years later, under another umask and time zone."""
    place = tmp_path_factory.mktemp("release")
    good("git", "clone", "--quiet", tree, place / "other tree", cwd=place)
    good(tree / "release" / "build", place / "one", sys.executable, cwd=tree, umask=0o022, TZ="UTC")
    later = {**clock, "TZ": "Asia/Tokyo", "SOURCE_DATE_EPOCH": "1", "PYTHONHASHSEED": "7"}
    shown = good("date", "+%Y", cwd=place, **later)
    assert int(shown) >= int(good("date", "+%Y", cwd=place)) + 1
    build = place / "other tree" / "release" / "build"
    good(build, place / "two", sys.executable, cwd=place, umask=0o077, **later)
    return place


@pytest.fixture(scope="module")
def commit(tree):
    return good("git", "rev-parse", "HEAD", cwd=tree)


def test_two_builds_have_the_same_bits(release):
    one, two = ({path.name: path.read_bytes() for path in (release / n).iterdir()} for n in ("one", "two"))
    assert len(one) == 3
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []


def test_files_in_them_are_sorted_and_have_fixed_modes_owners_and_times(release):
    (sdist,) = (release / "one").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = archive.getmembers()
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", 1580601600)}
    assert {m.mode for m in members} <= {0o644, 0o755}
    for wheel in (release / "one").glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            infos = archive.infolist()
        assert {info.date_time for info in infos} == {(2020, 2, 2, 0, 0, 0)}
        assert {info.external_attr >> 16 & 0o777 for info in infos} <= {0o644, 0o755}


def test_a_checkout_builds_the_same_wheel_as_its_source_distribution(release, tree, tmp_path):
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path)
    good(*build, tree, cwd=tree)
    (wheel,) = tmp_path.iterdir()
    assert wheel.read_bytes() == (release / "one" / wheel.name).read_bytes()


def test_the_check_accepts_it_and_names_its_digests(release, tree, commit):
    said = good(
        tree / "release" / "check", release / "one", release / "two", version_tag(release), commit, cwd=tree
    )
    assert len(said.splitlines()) == 3


def version_tag(release):
    (sdist,) = (release / "one").glob("*.tar.gz")
    return f"v{sdist.name.removeprefix('kakeya_bridge-').removesuffix('.tar.gz')}"


def test_the_check_refuses_other_bits_tags_and_commits(release, tree, commit, tmp_path):
    shutil.copytree(release / "two", tmp_path / "two")
    (wheel,) = (tmp_path / "two").glob("kakeya_bridge_models-*.whl")
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"x")
    check, one, two = tree / "release" / "check", release / "one", release / "two"

    for args, why in {
        (one, tmp_path / "two", version_tag(release), commit): "has other bits in the second build",
        (one, two, "v9.9.9", commit): "the tag v9.9.9 needs kakeya_bridge-9.9.9.tar.gz",
        (one, two, version_tag(release), "0" * 40): "not from 0000000",
    }.items():
        done = run(check, *args, cwd=tree)
        assert done.returncode == 1
        assert why in done.stderr


def test_an_installed_wheel_names_the_commit_in_each_program(release, commit, tmp_path):
    assert version_of(release / "one", tmp_path) == {f"{version_tag(release)[1:]} (commit {commit[:12]})"}


def test_a_build_of_a_changed_tree_says_so(tree, commit, tmp_path):
    good("git", "clone", "--quiet", tree, tmp_path / "changed", cwd=tmp_path)
    with (tmp_path / "changed" / "bridge" / "kinds.py").open("a") as file:
        file.write("# changed\n")
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist")
    good(*build, tmp_path / "changed", cwd=tmp_path)
    (said,) = version_of(tmp_path / "dist", tmp_path)
    assert said.endswith(f" (commit {commit[:12]}, with uncommitted changes)")


def test_an_exported_archive_knows_its_commit_and_a_folder_inside_another_checkout_names_none(
    tree, commit, tmp_path
):
    (tmp_path / "inside").mkdir()
    good("git", "init", "--quiet", cwd=tmp_path)
    (tmp_path / "x.tar").write_bytes(b"")
    good("git", "archive", "--output", tmp_path / "x.tar", "HEAD", cwd=tree)
    good("tar", "-xf", tmp_path / "x.tar", "-C", tmp_path / "inside", cwd=tmp_path)
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation")
    good(*build, "--outdir", tmp_path / "dist", tmp_path / "inside", cwd=tmp_path)
    (said,) = version_of(tmp_path / "dist", tmp_path / "a")
    assert said.endswith(f" (commit {commit[:12]})")

    shutil.copy(ROOT / "COMMIT", tmp_path / "inside" / "COMMIT")
    good(*build, "--outdir", tmp_path / "more", tmp_path / "inside", cwd=tmp_path)
    (said,) = version_of(tmp_path / "more", tmp_path / "b")
    assert said.endswith(" (built from a folder without git history)")


def version_of(dist: Path, place: Path) -> set[str]:
    """Return what the programs of a wheel say of their version, run from its unpacked files."""
    (wheel,) = dist.glob("kakeya_bridge-*.whl")
    folder = place / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    said = set()
    for name, module in (("kakeya", "bridge"), ("kakeya-runner", "runner"), ("kakeya-engine", "engine")):
        code = f"import sys; sys.path.insert(0, {str(folder)!r}); from {module}.cli import main; main()"
        out = good(sys.executable, "-I", "-c", code, "--version", cwd=place)
        assert out.startswith(f"{name} ")
        said.add(out.removeprefix(f"{name} "))
    return said
