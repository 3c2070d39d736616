"""``kakeya init``: a first preset of one's own, and the way from there to an answer."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.presets import load_presets

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/own-preset"
NAMES = [".kakeya/presets/time-sort.yaml", "jobs/time_sort.py", "README.md"]


def runner(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-P", "-m", "runner", *args]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".git" not in path.relative_to(folder).parts
    }


@pytest.fixture
def repo(tmp_path):
    folder = tmp_path / "repo"
    folder.mkdir()
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    return folder


def test_it_writes_the_example_that_the_project_shows(kakeya, repo):
    (repo / "below").mkdir()

    done = kakeya(repo / "below", "init")

    assert done.returncode == 0, done.stderr
    assert contents(repo) == contents(EXAMPLE)
    assert sorted(contents(EXAMPLE)) == sorted(NAMES)
    assert done.stdout.splitlines() == [f"wrote {name}" for name in NAMES]
    assert f"next: kakeya-runner try time-sort -e TIME_SORT_SCRIPT={repo}/jobs/time_sort.py" in done.stderr
    assert f"git -C {repo} add {NAMES[0]}" in done.stderr
    assert "`preset_folder` in the policy" in done.stderr
    assert f"once {NAMES[0]} is on the remote's default branch" in done.stderr


def test_what_exists_is_kept_and_a_second_run_changes_nothing(kakeya, repo):
    (repo / "README.md").write_text("# Mine\n")
    (repo / "jobs").mkdir()
    (repo / "jobs/time_sort.py").symlink_to("elsewhere")

    first = json.loads(kakeya(repo, "init", "--json").stdout)
    said = kakeya(repo, "init")
    second = json.loads(kakeya(repo, "init", "--json").stdout)

    assert (first["wrote"], second["wrote"]) == ([NAMES[0]], [])
    assert second["kept"] == NAMES
    assert (repo / "README.md").read_text() == "# Mine\n"
    assert (repo / "jobs/time_sort.py").readlink() == Path("elsewhere")
    assert not (repo / "jobs/elsewhere").exists()
    assert first["paste_into_readme"] == (EXAMPLE / "README.md").read_text()
    assert "README.md exists, so these lines were not written into it:" in said.stderr
    (repo / "README.md").write_text("# Mine\n\n" + first["paste_into_readme"])
    assert json.loads(kakeya(repo, "init", "--json").stdout)["paste_into_readme"] is None


@pytest.mark.long
def test_it_works_with_another_folder_and_never_outside_a_repository(kakeya, repo, tmp_path):
    assert kakeya(tmp_path, "-C", str(repo), "init").returncode == 0
    assert sorted(contents(repo)) == sorted(NAMES)

    (tmp_path / "bare").mkdir()
    subprocess.run(["git", "init", "--quiet", "--bare", str(tmp_path / "bare")], check=True)
    for folder, reason in ((tmp_path, "is not inside a git repository"), (tmp_path / "bare", "working tree")):
        done = kakeya(folder, "init")
        assert (done.returncode, reason in done.stderr) == (2, True), done.stderr
        assert not (folder / "jobs").exists()
    assert kakeya(tmp_path, "-C", "nowhere", "init").returncode == 2


OBSTACLES = {
    "a link that leads out": (
        lambda repo: (repo / ".kakeya").symlink_to(repo.parent),
        "leads out of the repository",
    ),
    "a file in the way": (lambda repo: (repo / ".kakeya").write_text("x"), "cannot write"),
    "a folder of the file's name": (lambda repo: (repo / "README.md").mkdir(), ""),
}


@pytest.mark.long
@pytest.mark.parametrize(("put", "reason"), OBSTACLES.values(), ids=OBSTACLES)
def test_what_is_in_the_way_is_named(kakeya, repo, put, reason):
    put(repo)

    done = kakeya(repo, "init")

    assert done.returncode == (2 if reason else 0), done.stderr
    assert reason in done.stderr
    assert not (repo.parent / "presets").exists()


def test_the_example_is_a_valid_preset():
    presets = load_presets(EXAMPLE / ".kakeya/presets")

    assert presets.broken == {}
    assert presets["time-sort"].params["count"].default == 100_000
    assert [claim.name for claim in presets["time-sort"].reports["time-sort"].claims] == ["median_s"]


@pytest.mark.bus
@pytest.mark.long
def test_from_init_to_a_verified_answer(kakeya, clone, runners, tmp_path, git):
    """As the printed steps say: try it, commit it, the owner takes it over, anybody asks for it."""
    steps = json.loads(kakeya(clone, "init", "--json").stdout)["next"]
    assert steps[0].startswith("kakeya-runner try time-sort -e TIME_SORT_SCRIPT=")
    tried = runner(clone, *steps[0].split()[1:])
    assert tried.returncode == 0, tried.stderr
    # A trial has no key.
    assert "ACCEPTED, unsigned" in tried.stdout
    git(clone, "add", ".kakeya", "jobs")
    git(clone, "commit", "--quiet", "--message", "Add a job")
    git(clone, "push", "--quiet", "origin", "HEAD")

    owners = tmp_path / "owners"
    owners.mkdir(mode=0o700)
    for name in NAMES[:2]:
        shutil.copy2(EXAMPLE / name, owners)
        (owners / Path(name).name).chmod(0o600)
    env = {"TIME_SORT_SCRIPT": str(owners / "time_sort.py")}
    settings = {"preset_folder": str(owners), "presets": ["time-sort"], "env": env}
    policy = runners.policy("one", **settings)
    key = runner(tmp_path, "--policy", str(policy), "keygen")
    assert key.returncode == 0, key.stderr
    (tmp_path / "one.pub").write_text(key.stdout)
    git(clone, "config", "kakeya.publicKey", str(tmp_path / "one.pub"))
    runners.start("one", **settings)

    done = kakeya(clone, "run", "time-sort", "-p", "count=2000", "--wait")

    assert done.returncode == 0, done.stderr
    assert "2000 numbers, random: " in done.stdout
    accepted = "ACCEPTED, signed by one's key"
    assert f"gate: {accepted}" in done.stderr
    assert "time-sort: schema, 1 claim (median_s) derived again from 7 samples" in done.stderr
    fetched = kakeya(clone, "fetch", "--out", str(tmp_path / "answer"))
    assert fetched.returncode == 0, fetched.stderr
    report = json.loads((tmp_path / "answer/results/research/time-sort.json").read_text())
    assert (report["count"], len(report["seconds"])) == (2000, 7)
    verified = kakeya(clone, "verify")
    assert verified.returncode == 0
    assert verified.stdout.splitlines()[-1] == f"verified: succeeded, {accepted}"
    (claim,) = json.loads(kakeya(clone, "report", "--json").stdout)["runs"][0]["reports"][0]["claims"]
    assert (claim["name"], claim["value"]) == ("median_s", statistics.median(report["seconds"]))
    (line,) = map(json.loads, kakeya(clone, "list", "--claims", "median_s", "--json").stdout.splitlines())
    assert (line["verdict"], line["voucher"]) == ("ACCEPTED", "signed by one's key")
