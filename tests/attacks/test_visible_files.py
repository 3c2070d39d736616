"""What a job sees of the host's files: one canary of each kind that docs/security.md promises to hide."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from bridge.checklist import Check
from bridge.errors import PresetError
from bridge.presets import load_presets
from runner.context import open_runner
from runner.doctor.visible import visible_files
from runner.job.sandbox import hub, seatbelt
from runner.job.sandbox.private_files import PATTERN, hidden_below, is_private
from runner.policy import load_policy

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nMA==\n-----END PRIVATE KEY-----\n"
# Each file below its place holds a text that no job may print.
HIDDEN = {
    "home": (
        ".ssh/id_ed25519", ".ssh/config", ".netrc", "_netrc", ".aws/credentials", ".config/gh/hosts.yml", ".npmrc",
        ".pypirc", ".config/kakeya/runner.yaml", ".cache/huggingface/token", ".cache/huggingface/stored_tokens",
        "notes.txt",
        ".cache/huggingface/hub/models--a--b/snapshots/1/config.json", ".git-credentials", ".huggingface/token",
    ),
    "runners/state-attacked": ("other.key", "ledger.txt", "work/other-job/home/report"),
    "hf": (
        "token", "stored_tokens", "hub/token", ".netrc", "hub/models--secret--model/snapshots/1/config.json",
        "hub/datasets--secret--data/snapshots/1/data.txt", "hub/models--a--b/token", "hub/models--a--b/notes.txt",
        "hub/models--a--b/snapshots/1/.env", "hub/models--a--b/snapshots/1/.git/config",
    ),
    "checkout": (
        ".git/config", ".env", ".env.local", "key.pem", "notes.txt", "package/.env", "package/deep/.netrc",
        "package/deep/_netrc", "package/key.pem", "package/deep/id_rsa", "package/deep/id_work", "package/token",
        "package/deep/.git/config", "package/.npmrc", "package/.pypirc", "package/.aws/credentials",
        "package/.ssh/known_hosts", "package/.config/gh/hosts.yml", "package/.git-credentials", "package/stored_tokens",
        "package/server.key", "package/store.p12", "package/.ENV",
    ),
    "venv": (".env", "pip.conf", "src/other/.git/config", "src/other/.env"),
    "shown": (
        ".git/config", ".env", "deep/er/.env.production", "deep/token", "deep/private.pem", ".cache/.netrc",
        "hub/models--secret--model/snapshots/1/config.json",
    ),
    "beside": ("file.txt",),
}  # fmt: skip
# What jobs need of the same folders.
SEEN = {
    "checkout": ("package/module.py", "package/deep/tokens.json", "package/cacert.pem", "package/id_map.json"),
    "hf": ("hub/models--a--b/snapshots/1/config.json", "hub/models--a--b/refs/main", "hub/datasets--a--data/refs/main"),
    "shown": ("data.txt", "deep/token.py", "deep/token_of/file", ".config/other/file", "deep/.gitattributes"),
}  # fmt: skip
SEARCH = """
    import json, os, sys
    seen = {}
    def look(path):
        try:
            with open(path, "rb") as file:
                seen[path] = file.read(10_000).decode("utf-8", "replace")
        except OSError:
            pass
    def walk(root):
        look(root)
        for folder, folders, names in os.walk(root):
            for name in names:
                look(os.path.join(folder, name))
    for path in [*sys.argv[1:], "/tmp", "/home", "/var", "/run", "/opt", "/srv", "/etc", "../../.."]:
        walk(path)
    seen["environment"] = "canary-hidden " * ("canary-" in repr(dict(os.environ)))
    for path, text in seen.items():
        if text.startswith("canary-"):
            print(json.dumps([path, text.split()[0]]))
"""


@pytest.fixture
def host(tmp_path, monkeypatch, runners):
    """A host with a canary at every place of the tables, and an interpreter whose sources are installed in place."""
    del runners  # it makes the folder
    places = {name: tmp_path / name for name in (*HIDDEN, *SEEN)} | {"home": Path.home()}
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", places["venv"]], check=True)
    for kind, table in (("hidden", HIDDEN), ("seen", SEEN)):
        for place, names in table.items():
            for name in names:
                file = places[place] / name
                file.parent.mkdir(parents=True, exist_ok=True)
                text = (
                    CERTIFICATE
                    if kind == "seen" and name.endswith(".pem")
                    else KEY
                    if name.endswith(".key")
                    else ""
                )
                file.write_text(f"canary-{kind}:{place}/{name} {text}\n")
    (places["shown"] / "link").symlink_to(places["home"] / ".ssh" / "id_ed25519")
    (places["shown"] / "link.txt").symlink_to(places["shown"] / ".env")
    packages = next((places["venv"] / "lib").glob("python*/site-packages"))
    (packages / "it.pth").write_text(f"{places['checkout']}\n")
    about = packages / "it-1.dist-info" / "direct_url.json"
    about.parent.mkdir()
    about.write_text(json.dumps({"url": places["checkout"].as_uri(), "dir_info": {"editable": True}}))
    for name in (
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "GH_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "KAKEYA_BUS_TOKEN",
    ):
        monkeypatch.setenv(name, "canary-hidden:environment")
    with tempfile.NamedTemporaryFile(prefix="canary-", dir="/tmp") as file:
        file.write(b"canary-hidden:/tmp/file")
        file.flush()
        yield places


def policy_of(host, **env):
    env = {"HF_HOME": str(host["hf"]), "SHOWN": str(host["shown"]), "MODELS": "a/b a/data", **env}
    return {"interpreter": str(host["venv"] / "bin" / "python"), "env": env}


@pytest.mark.usefixtures("confined")
@pytest.mark.parametrize("code", ["installed", "request"])
def test_row_138_a_job_that_looks_everywhere_sees_only_what_is_listed(attacked, host, code):
    policy = policy_of(host) | {"trust": {"code_request": "allow"}}
    roots = [str(path) for path in host.values()]
    answer = attacked.by(SEARCH, *roots, policy=policy, code=code, pass_env=["HF_HOME", "SHOWN"])

    assert answer.result.reason.code == "ok", answer.log
    found = {json.loads(line)[1] for line in answer.log.splitlines()}
    assert found == {f"canary-seen:{place}/{name}" for place, names in SEEN.items() for name in names}


@pytest.mark.usefixtures("confined")
def test_row_138_a_job_has_a_cache_of_its_own_with_the_named_models(attacked, host):
    script = """
        import os
        home = os.environ["HF_HOME"]
        print(open(home + "/hub/models--a--b/snapshots/1/config.json").read(), sorted(os.listdir(home + "/hub")))
        print([open(home + "/token").read(), os.environ["HF_HUB_CACHE"] == home + "/hub"])
        os.makedirs(home + "/hub/.locks"); open(home + "/xet", "w").close()
        try:
            open(home + "/hub/models--a--b/refs/main", "w")
        except OSError as error:
            print(error.strerror)
    """
    policy = policy_of(host, HF_HUB_CACHE=str(host["hf"] / "hub"))
    log = attacked.by(script, policy=policy, pass_env=["HF_HOME", "HF_HUB_CACHE"]).log

    assert log.splitlines() == [
        "canary-seen:hf/hub/models--a--b/snapshots/1/config.json ",
        " ['datasets--a--data', 'models--a--b']",
        "['', True]",
        "Read-only file system",
    ]


@pytest.mark.usefixtures("confined")
def test_row_138_links_lead_to_nothing_that_is_hidden(attacked, tmp_path):
    hub_folder, blobs = tmp_path / "disk" / "hub", tmp_path / "other-disk" / "blobs"
    repository = hub_folder / "models--a--b"
    snapshot = repository / "snapshots" / "1"
    for folder in (snapshot, blobs, tmp_path / "hf"):
        folder.mkdir(parents=True)
    for file in (blobs / "weights", blobs / "private", tmp_path / "disk" / "token"):
        file.write_text(f"canary-{file.name}")
    (repository / "blobs").symlink_to(blobs)
    (snapshot / "weights").symlink_to("../../blobs/weights")
    (snapshot / ".env").symlink_to("../../blobs/private")
    (snapshot / "out").symlink_to(tmp_path / "disk" / "token")
    (tmp_path / "hf" / "hub").symlink_to(hub_folder)
    (tmp_path / "link").symlink_to(tmp_path / "hf")
    script = """
        import os
        folder = os.environ["HF_HOME"] + "/hub/models--a--b/snapshots/1"
        for name in ("weights", ".env", "../../blobs/private", "out"):
            try:
                print(open(folder + "/" + name).read())
            except OSError:
                print("hidden")
    """
    policy = {"env": {"HF_HOME": f"{tmp_path / 'link'}/", "MODEL": "a/b"}}

    log = attacked.by(script, policy=policy, pass_env=["HF_HOME"]).log

    assert log.splitlines() == ["canary-weights", "hidden", "hidden", "hidden"]


@pytest.mark.usefixtures("confined")
def test_row_138_a_token_that_is_written_during_the_job_stays_hidden(attacked, host, tmp_path):
    script = """
        import os, pathlib, time
        (pathlib.Path.home() / "started").touch()
        while not (pathlib.Path.home() / "go").exists():
            time.sleep(0.01)
        for root in (os.environ["HF_HOME"], os.environ["REAL"], os.environ["REAL"] + "/hub/models--late--model"):
            print([(p, os.path.isfile(p) and open(p).read()) for p in (root + "/token", root + "/config.json")])
    """

    def log_in(stop: threading.Event) -> None:
        work = tmp_path / "runners" / "state-attacked" / "work"
        while not (started := [*work.glob("*/home/started")]) and not stop.wait(0.01):
            pass
        (host["hf"] / "hub" / "models--late--model").mkdir()
        for name in ("token", "hub/models--late--model/token", "hub/models--late--model/config.json"):
            (host["hf"] / name).write_text("canary-late")
        for file in started:
            file.with_name("go").touch()

    stop = threading.Event()
    thread = threading.Thread(target=log_in, args=(stop,))
    thread.start()
    preset = {"pass_env": ["HF_HOME"], "env": {"REAL": str(host["hf"])}}
    answer = attacked.by(script, policy=policy_of(host), **preset)
    stop.set()
    thread.join()

    assert answer.result.reason.code == "ok", answer.log
    assert "canary" not in answer.log


@pytest.mark.parametrize("sandbox", ["off", "require"])
def test_row_138_the_hubs_token_is_taken_out_of_logs(attacked, request, monkeypatch, tmp_path, sandbox):
    if sandbox == "require":
        request.getfixturevalue("confined")
    values = [f"hf_{name}0123456789" for name in ("environment", "home", "setting", "stored")]
    monkeypatch.setenv("HF_TOKEN", values[0])
    for file, text in (
        (Path.home() / ".cache/huggingface/token", values[1]),
        (tmp_path / "hf/token", values[2]),
        (tmp_path / "hf/stored_tokens", f"[me]\nhf_token = {values[3]}\n"),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    answer = attacked.by(
        f"print({values!r})", policy={"sandbox": sandbox, "env": {"HF_HOME": str(tmp_path / "hf")}}
    )

    assert answer.log == f"{['[redacted]'] * 4}\n"


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "KAKEYA_BUS_TOKEN"]
)
@pytest.mark.parametrize("way", ["env", "pass_env", "argv"])
def test_row_138_no_preset_passes_a_token(presets, name, way):
    argv = ["/bin/echo", *([f"${{ENV:{name}}}"] if way == "argv" else [])]
    more = {"env": {"env": {name: "x"}}, "pass_env": {"pass_env": [name]}, "argv": {}}[way]
    loaded = load_presets(presets(mine={"steps": [{"argv": argv}], **more}))

    assert "mine" not in loaded
    assert isinstance(loaded.broken["mine"], PresetError)
    assert f"{name} may not be set or passed" in loaded.broken["mine"].message


@pytest.mark.usefixtures("confined")
def test_check_lists_what_jobs_see(host, runners, presets):
    (host["shown"] / ".env").write_text("x")
    env = {"PRIVATE": str(host["shown"] / ".env")}
    argv = ["/bin/true", "${ENV:SHOWN}"]
    folder = str(presets(mine={"steps": [{"argv": argv}], "pass_env": ["HF_HOME", "PRIVATE"]}))

    def said(**more: object) -> list[Check]:
        given = (
            policy_of(host, **env)
            | {"sandbox": "require", "preset_folder": folder, "presets": ["mine"]}
            | more
        )
        with open_runner(load_policy(runners.policy("seen", **given)), print) as context:
            return [*visible_files(context.machine.sandbox, context.policy, context.presets)]

    readable, writable, private, cache = said()
    assert {"/usr", str(host["shown"]), str(host["hf"] / "hub/models--a--b/blobs")[:-6] + "/refs"} <= set(
        readable.message.partition(": ")[2].split(", ")
    )
    assert "only a folder and a home of their own" in writable.message
    assert (private.ok, private.message) == (
        None, f"PRIVATE: {env['PRIVATE']} is hidden from jobs, because it is a private file",
    )  # fmt: skip
    assert cache.message.endswith("jobs see only datasets--a--data, models--a--b")

    *_, cache = said(**policy_of(host, MODELS="c/d"))
    assert cache.ok is None
    assert "jobs see no model of the hub's cache" in cache.message
    assert [check.ok for check in said(sandbox="off")] == [None]


def test_the_profile_for_macos_hides_the_same_files(host):
    shown = [host["checkout"] / "package", host["shown"], *hub.parts(host["hf"] / "hub/models--a--b")]
    hidden = list(hidden_below(shown))
    text, params = seatbelt.build_profile(
        tree=host["beside"], home=host["beside"], network=False, readable=shown, hidden=hidden
    )

    lines = text.splitlines()
    denied = {value for name, value in params.items() if name.startswith("HIDE")}
    private = {
        str(host["shown"] / "deep" / "token"), str(host["checkout"] / "package" / "key.pem"),
        str(host["shown"] / "hub" / "models--secret--model"), str(host["hf"] / "hub/models--a--b/snapshots/1/.env"),
    }  # fmt: skip
    assert private <= denied
    later = lines.index(f'(deny file-read* file-write* (require-all (regex #"{PATTERN}")))')
    assert all(lines.index(line) < later for line in lines if "READ_" in line)
    assert all(lines.index(line) > later for line in lines if "WRITE_" in line)
    assert set(map(str, shown)) >= {value for name, value in params.items() if name.startswith("READ")}


def test_the_profile_for_macos_shows_a_virtual_environment_that_is_called_env(tmp_path):
    for name in (".env/bin", "tree"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".env" / "pyvenv.cfg").touch()
    text, params = seatbelt.build_profile(
        tree=tmp_path / "tree", home=tmp_path / "tree", network=False, readable=[tmp_path / ".env"]
    )

    assert params["READ_0"] == str(tmp_path / ".env")
    assert f'(require-all (regex #"{PATTERN}") (require-not (subpath (param "READ_0")))))' in text
    assert not is_private(tmp_path / ".env")
    assert [*hidden_below([tmp_path])] == []


@pytest.mark.parametrize(
    ("text", "private"),
    [
        (CERTIFICATE, False), ("-----BEGIN PUBLIC KEY-----\nMA==\n", False), (CERTIFICATE + KEY, True), (KEY, True),
        ("", True),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\n", True), ("-----BEGIN RSA PRIVATE KEY-----\n", True), ("text", True),
    ],
)  # fmt: skip
def test_a_key_is_private_unless_it_is_public_by_its_content(tmp_path, text, private):
    for name in ("x.pem", "x.PEM", "x.key", "x.p8"):
        (tmp_path / name).write_text(text)
        assert is_private(tmp_path / name) == private


def test_a_key_that_cannot_be_read_is_private(tmp_path):
    (tmp_path / "x.pem").mkdir()
    assert not is_private(tmp_path / "x.pem")
    loop = tmp_path / "loop.pem"
    loop.symlink_to("loop.pem")
    assert not is_private(loop)
    closed = tmp_path / "closed.pem"
    closed.write_text(CERTIFICATE)
    closed.chmod(0)
    assert is_private(closed) == (os.geteuid() != 0)
