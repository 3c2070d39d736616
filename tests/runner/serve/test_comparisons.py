"""Two trees in one job, from ``kakeya run --against`` to a verified answer; and what may not pass for a comparison."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bridge.bus import wire
from bridge.bus.wire import State
from bridge.client import Client
from bridge.errors import UsageError
from tests.conftest import git

pytestmark = pytest.mark.bus

EXAMPLE = Path(__file__).parents[3] / "examples/two-commits"
ALLOW = {"code_request": "allow"}
NUMBER = {"measure": "printed", "pointer": "/ns", "unit": "ns", "better": "lower", "rounds": 6}


@pytest.fixture
def compared(presets):
    """A folder with a preset whose last step prints a number of its tree, after another step prepared it."""
    prepare = "[ ! -e .mac-bridge ] && [ ! -e prepared ] && cp number prepared && pwd > $HOME/place"
    measure = '[ "$(cat $HOME/place)" = "$PWD" ] && echo noise && echo "{\\"ns\\": $(cat prepared)}"'
    steps = [{"argv": ["/bin/sh", "-c", prepare]}, {"argv": ["/bin/sh", "-c", measure]}]
    return presets(number={"code": "request", "timeout_s": 900, "steps": steps, "compare": NUMBER})


def commit(clone, **files):
    """Commit files, and return the commit."""
    for name, content in files.items():
        (clone / name).write_text(content)
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "-m", "A change")
    return git(clone, "rev-parse", "HEAD")


@pytest.fixture
def client(clone, keyed, compared, monkeypatch):
    """A client with the preset and the runner's key, in a clone with two commits: the second prints less."""
    monkeypatch.setenv("KAKEYA_PRESETS", str(compared))
    monkeypatch.setenv("KAKEYA_PUBLIC_KEY", str(keyed.key()))
    commit(clone, number="200")
    commit(clone, number="100")
    return Client(clone)


def report_of(folder):
    return json.loads((folder / wire.COMPARISON_REPORT).read_text())


@pytest.mark.long
def test_two_commits_are_compared_in_one_job(clone, client, keyed, compared, tmp_path):
    run = client.run("number", against="HEAD~1")

    keyed.handle(preset_folder=str(compared), trust=ALLOW, sandbox="auto")

    checked = run.verify()
    assert checked.holds, checked.checks
    assert checked.conclusion.text == "succeeded, ACCEPTED_BY_REQUESTER, signed by one's key"
    fetched = run.fetch(tmp_path / "out")
    report = report_of(tmp_path / "out")
    assert [claim["name"] for claim in report["claims"]] == ["ratio", "ratio", "improvement"]
    change = report["claims"][2]
    assert (change["arm"], change["against"]) == ("candidate", "baseline")
    assert [change["value"], *change["interval"]] == pytest.approx([2.0] * 3)
    trees = [git(clone, "rev-parse", f"{name}^{{tree}}") for name in ("HEAD", "HEAD~1")]
    assert [report["config"][arm]["tree"] for arm in ("candidate", "baseline")] == trees
    # One log and one result for each step, as without a comparison.
    assert [len(command.argv) for command in fetched.result.commands] == [3, 3]
    assert run.logs().count("--- in the tree of the candidate, round") == 12
    assert {command.exit_code for command in fetched.result.commands} == {0}


@pytest.mark.long
def test_the_example_finds_a_slower_commit(kakeya, clone, keyed, monkeypatch, tmp_path):
    monkeypatch.setenv("KAKEYA_PRESETS", str(EXAMPLE / "presets"))
    monkeypatch.setenv("KAKEYA_PUBLIC_KEY", str(keyed.key()))
    shutil.copy(EXAMPLE / "count_words.py", clone)
    commit(clone)
    slower = (clone / "count_words.py").read_text().replace("range(12)", "range(36)")
    commit(clone, **{"count_words.py": slower})

    code, text = kakeya("run", "count-words", "--against", "HEAD~1")
    assert code == 0, text
    keyed.handle(preset_folder=str(EXAMPLE / "presets"), trust=ALLOW)

    code, text = kakeya("wait", "--fail-if-slower", "5%")
    assert (code, "compared: regression: candidate over baseline" in text) == (5, True), text
    assert "--fail-if-slower: at least" in text
    assert "next: kakeya report" in text
    code, text = kakeya("wait", "--fail-if-slower", "900%", "--json")
    answer = json.loads(text.splitlines()[-1])
    assert (code, answer["exit_code"], answer["comparison"]["change"]) == (0, 0, "regression")
    assert kakeya("wait", "--fail-if-slower", "5%", "--json")[0] == 5
    assert kakeya("verify", "--fail-if-slower", "5%")[0] == 5
    assert kakeya("verify")[0] == 0
    code, text = kakeya("fetch", "--out", tmp_path / "out")
    assert report_of(tmp_path / "out")["claims"][2]["name"] == "regression"
    assert kakeya("gate", tmp_path / "out/results", "--kind", "kakeya.compare")[0] == 0
    code, text = kakeya("report", "--markdown")
    assert "| regression | candidate against baseline |" in text, text
    assert len(text) < 60_000  # the limit of a comment on a pull request
    assert f"--against {git(clone, 'rev-parse', 'HEAD~1')}" in text


def test_what_cannot_be_compared_is_not_sent(clone, client, presets):
    presets(plain={"code": "request", "steps": [{"argv": ["/bin/true"]}]})

    for preset, against, message in (
        ("number", "nowhere", "'nowhere' is not a commit in this repository"),
        ("number", "HEAD", "HEAD and HEAD have the same files"),
        ("plain", "HEAD~1", "the preset plain does not say what to measure in two trees"),
    ):
        with pytest.raises(UsageError, match=message):
            client.run(preset, against=against)
    assert client.list() == []


def test_uncommitted_changes_are_compared_with_a_commit(clone, client):
    with pytest.raises(UsageError, match="the working tree and HEAD have the same files"):
        client.run("number", snapshot=True, against="HEAD")
    (clone / "number").write_text("300")

    sent = client.run("number", snapshot=True, against="HEAD")

    request = json.loads(git(clone, "show", f"{sent.commit}:{wire.REQUEST}"))
    assert request["against"] == git(clone, "rev-parse", "HEAD")
    assert git(clone, "rev-parse", f"{sent.commit}^@").split() == [request["workload"], request["against"]]


def test_a_limit_needs_a_comparison_and_an_answer(kakeya, client):
    for args in (("--wait",), ("--against", "HEAD~1")):
        code, text = kakeya("run", "number", *args, "--fail-if-slower", "5%")
        assert (code, "--fail-if-slower needs --against and --wait" in text) == (2, True), text
    code, text = kakeya("wait", "--fail-if-slower", "5")
    assert (code, "'5' is not a percentage: write 5% or 2.5%" in text) == (2, True), text
    assert client.list() == []


# What a runner refuses, with the reason's code: the changes of an honest comparison's manifest, and of its parents.
REFUSED = {
    "no baseline among the parents": ({}, ("HEAD",), "workload_mismatch"),
    "the parents in another order": ({}, ("HEAD~1", "HEAD"), "workload_mismatch"),
    "one parent more": ({}, ("HEAD", "HEAD~1", "HEAD~2"), "workload_mismatch"),
    "a baseline that is nowhere": ({"against": "1" * 40}, ("HEAD", "HEAD~1"), "workload_mismatch"),
    "a name instead of a commit": ({"against": "main"}, ("HEAD", "HEAD~1"), "bad_manifest"),
    "the workload itself": ({"against": "HEAD"}, ("HEAD", "HEAD"), "workload_mismatch"),
    "a commit of the same tree": ({"against": "same"}, ("HEAD", "same"), "same_tree"),
    "a preset that compares nothing": ({"preset": "plain"}, ("HEAD", "HEAD~1"), "not_comparable"),
    "schema version 1": (
        {"schema_version": 1, **dict.fromkeys(("workload", "created_at", "expires_at", "code"))},
        ("HEAD", "HEAD~1"), "bad_manifest",
    ),
}  # fmt: skip


@pytest.mark.rows(2)
@pytest.mark.parametrize("name", REFUSED)
def test_a_forged_comparison_is_refused(name, clone, client, requester, keyed, compared, presets):
    presets(plain={"code": "request", "steps": [{"argv": ["/bin/true"]}]})
    changes, parents, code = REFUSED[name]
    head, baseline = (git(clone, "rev-parse", each) for each in ("HEAD", "HEAD~1"))
    git(clone, "tag", "same", git(clone, "commit-tree", "-m", "same", "HEAD^{tree}"))
    named = {"HEAD": head, "same": git(clone, "rev-parse", "same")}
    changes = {key: named.get(str(value), value) for key, value in changes.items()}
    manifest = requester.manifest(**{
        "preset": "number", "code": "request", "workload": head, "against": baseline, **changes,
    })  # fmt: skip
    commits = tuple(git(clone, "rev-parse", parent) for parent in parents)
    branch = requester.send(manifest, parents=commits)

    keyed.handle(preset_folder=str(compared), trust=ALLOW)

    result = client.result(branch)
    assert (result.state, result.reason.code) == (State.REFUSED, code), result.reason
    assert result.commands == []


def hostile(clone, name):
    """Commit a tree that no runner writes, and then the tree before it; the first of them is the baseline."""
    before = git(clone, "rev-parse", "HEAD")
    entry = {
        "a link out of the tree": "120000 blob " + hashed(clone, "../../elsewhere"),
        "a name of git's": "100644 blob " + hashed(clone, "x"),
    }[name]
    path = "link" if "link" in name else ".git\u200b"
    listed = git(clone, "ls-tree", "HEAD") + f"\n{entry}\t{path}\n"
    tree = git(clone, "mktree", stdin=listed)
    return git(clone, "commit-tree", "-p", before, "-m", "hostile", tree)


def hashed(clone, text):
    return git(clone, "hash-object", "-w", "--stdin", stdin=text)


@pytest.mark.parametrize("name", ["a link out of the tree", "a name of git's"])
def test_a_baseline_with_a_hostile_tree_is_refused(name, clone, client, keyed, compared):
    run = client.run("number", against=hostile(clone, name))

    keyed.handle(preset_folder=str(compared), trust=ALLOW)

    result = client.result(run.branch)
    assert (result.state, result.reason.code) == (State.REFUSED, "hostile_tree")
    assert result.reason.message.startswith("in the baseline, the ")
    assert run.verify().holds


def test_a_step_that_fails_in_one_tree_ends_the_job_and_says_where(clone, client, keyed, compared):
    baseline = commit(clone, number="1")
    git(clone, "rm", "--quiet", "number")
    git(clone, "commit", "--quiet", "-m", "No number")

    run = client.run("number", ref=baseline, against="HEAD")
    keyed.handle(preset_folder=str(compared), trust=ALLOW)

    result = client.result(run.branch)
    assert (result.state, result.reason.code) == (State.FAILED, "exit_code")
    assert result.reason.message == "step 0 ended with 1, in the tree of the baseline"
    assert "kakeya-compare" not in json.dumps([file.path for file in result.files])
    assert run.verify().holds


NO_NUMBER = {
    "nothing": "",
    "a text": '{"ns": "7"}',
    "zero": '{"ns": 0}',
    "true": '{"ns": true}',
    "no JSON": "{ns: 7}",
}


@pytest.mark.rows(1)
@pytest.mark.parametrize("printed", NO_NUMBER)
def test_a_step_that_prints_no_number_ends_the_job(printed, clone, client, keyed, presets):
    folder = presets(number={
        "code": "request", "steps": [{"argv": ["/bin/cat", "out"]}], "compare": NUMBER,
    })  # fmt: skip
    commit(clone, out='{"ns": 5}')
    commit(clone, out=NO_NUMBER[printed])

    run = Client(clone).run("number", against="HEAD~1")
    keyed.handle(preset_folder=str(folder), trust=ALLOW)

    reason = client.result(run.branch).reason
    assert reason.code == "no_sample"
    assert reason.message == (
        "step 0 printed no line with a JSON object that has a positive number at /ns, in the tree of the candidate"
    )


def answer(keyed, clone, presets, compare=None, baseline=None, **preset):
    """Compare two commits under a preset of this body. Returns the run and its answer."""
    body = {"code": "request", "timeout_s": 900, "compare": compare or NUMBER, **preset}
    folder = presets(job=body)
    run = Client(clone).run("job", against=baseline or "HEAD~1")
    keyed.handle(preset_folder=str(folder), trust=ALLOW, sandbox="auto")
    return run, run.client.result(run.branch)


def shell(*scripts):
    return [{"argv": ["/bin/sh", "-c", script]} for script in scripts]


FORGE = f"""
ls ../.. | wc -l >seen && ls .. | wc -l >>seen && [ "$(tr '\n' ' ' <seen)" = "1 2 " ] || exit 9
mkdir -p results/research .mac-bridge
for file in {wire.COMPARISON} {wire.COMPARISON_REPORT} results/research/other.json; do echo '{{}}' >$file; done
printf '{{"ns": %s}}\\n' "$(cat number)"
"""


@pytest.mark.long
def test_row_156_a_step_reaches_neither_the_other_tree_nor_the_report(
    clone, client, keyed, presets, tmp_path
):
    """It looks for the other arms, and leaves a report of its own where the runner's would be."""
    commit(clone, number="200", **{"forge.sh": FORGE})
    commit(clone, number="100")

    run, result = answer(keyed, clone, presets, steps=FORGED, collect=["results/research/*.json"])

    assert result.state is State.SUCCEEDED, (result.reason, run.logs())
    assert run.verify().holds
    run.fetch(tmp_path / "out")
    assert report_of(tmp_path / "out")["claims"][2]["value"] == pytest.approx(2.0)
    assert sorted(file.path for file in result.files if not file.path.endswith(".log")) == [
        wire.COMPARISON, f"{wire.LOGS}/summary.json", wire.COMPARISON_REPORT,
    ]  # fmt: skip


FORGED = [{"argv": ["/bin/sh", "forge.sh"]}]
VOUCHED = f"""
mkdir -p results/research
printf '{{"kind": "kakeya.compare", "run": {{"id": "%s"}}}}' "$KAKEYA_RUN_ID" >{wire.COMPARISON_REPORT}
echo kakeya-file "$KAKEYA_RUN_ID" "$(sha256sum <{wire.COMPARISON_REPORT} | cut -c -64)"
"""


def test_row_156_a_job_alone_makes_no_comparison(clone, client, keyed, presets):
    """A report of that kind, and the line by which jobs vouch for files, count only if the runner compared."""
    commit(clone, **{"forge.sh": VOUCHED})
    collect = {"collect": ["results/research/*.json"], "gate": "reports"}
    folder = presets(job={"code": "request", "steps": FORGED, "compare": NUMBER, **collect})

    run = Client(clone).run("job")
    keyed.handle(preset_folder=str(folder), trust=ALLOW)

    result = client.result(run.branch)
    assert result.gate, result.reason
    assert "NOT_THIS_RUN" in {violation.code for violation in result.gate.violations}
    assert run.client.comparison(run.branch) is None


def test_a_comparison_that_takes_too_long_is_ended(clone, client, keyed, presets):
    run, result = answer(keyed, clone, presets, {"measure": "wall"}, steps=shell("sleep 30"), timeout_s=2)

    assert (result.state, result.reason.code) == (State.TIMED_OUT, "timeout")
    assert "in the tree of the candidate" in result.reason.message
    assert run.verify().holds


@pytest.mark.long
def test_a_comparison_can_be_cancelled(clone, client, keyed, presets, runners, wait_for):
    folder = presets(job={"code": "request", "steps": shell("sleep 1"), "compare": {"measure": "wall"}})
    keyed.key()
    runners.start(preset_folder=str(folder), trust=ALLOW)
    run = Client(clone).run("job", against="HEAD~1")
    wait_for(lambda: run.status().state is State.RUNNING)

    run.cancel("enough")

    assert run.wait(120).state is State.CANCELLED
    result = client.result(run.branch)
    assert result.reason.message == "the requester cancelled it: enough"
    assert run.verify().holds


def test_a_baseline_of_pointers_to_large_files_is_not_measured(clone, client, keyed, presets):
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12345\n"
    commit(clone, **{"number": pointer, ".gitattributes": "number filter=lfs diff=lfs merge=lfs -text\n"})
    baseline = git(clone, "rev-parse", "HEAD")
    git(clone, "rm", "--quiet", ".gitattributes")
    commit(clone, number="7")

    _, result = answer(keyed, clone, presets, baseline=baseline, steps=shell("cat number"))

    assert (result.state, result.reason.code) == (State.FAILED, "lfs_pointers")
    assert result.commands == []


@pytest.mark.long
def test_attributes_of_the_baseline_change_no_file(clone, client, keyed, presets, tmp_path):
    """Each arm has the bytes of its commit, whatever filters and line ends a tree asks for."""
    commit(clone, number="5\n", **{".gitattributes": "* text eol=crlf ident export-ignore filter=evil\n"})
    git(clone, "rm", "--quiet", ".gitattributes")
    git(clone, "commit", "--quiet", "-m", "Without attributes")
    same = "test $(wc -c < number) = 2 && exit 3; exit 4"

    _, result = answer(keyed, clone, presets, NUMBER | {"rounds": 6}, steps=shell(same))

    assert (result.reason.code, result.reason.message) == (
        "exit_code",
        "step 0 ended with 3, in the tree of the candidate",
    )


@pytest.mark.long
def test_each_tree_must_have_what_a_job_leaves(clone, client, keyed, presets):
    steps = [
        {
            "argv": [
                "/bin/sh",
                "-c",
                '[ "$(cat number)" = 200 ] || echo > left; echo "{\\"ns\\": $(cat number)}"',
            ]
        }
    ]
    folder = presets(leaving={"code": "request", "steps": steps, "compare": NUMBER, "leaves": ["left"]})
    run = client.run("leaving", against="HEAD~1")

    keyed.handle(preset_folder=str(folder), trust=ALLOW)

    result = client.result(run.branch)
    message = "step 0 ended with 0, but left no new file left, in the tree of the baseline"
    assert (result.state, result.reason.code, result.reason.message) == (
        State.FAILED,
        "no_file_left",
        message,
    )
