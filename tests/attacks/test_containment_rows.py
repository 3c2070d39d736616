"""The rows of the attack table that are about the job itself: what it can read, what it leaves, what it can make us do.

Each test carries the number of its row. docs/security.md holds the tables.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import resource
import sys
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from bridge.bus.wire import State
from bridge.cli import cli
from runner.job.logs import REDACTED

pytestmark = [pytest.mark.bus, pytest.mark.usefixtures("confined")]

TOKEN = "ghp_canaryCANARYcanary0123456789abcdef"
HEADER = base64.b64encode(f"x-access-token:{TOKEN}".encode())


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "keys" / "token"
    path.parent.mkdir()
    path.write_text(TOKEN)
    path.chmod(0o600)
    return path


SEARCH = """
    import glob, os, subprocess, sys
    def show(path):
        try:
            with open(path, "rb") as file:
                sys.stdout.buffer.write(file.read(100_000))
        except OSError as error:
            print("no", path, error.strerror)
    print("processes", len([name for name in os.listdir("/proc") if name.isdigit()]), flush=True)
    for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
        show(path)
    for fd in os.listdir("/proc/self/fd"):
        try:
            print("fd", fd, os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            pass
    for root in sys.argv[1:]:
        show(root)
        for folder, _, names in os.walk(root):
            for name in names:
                show(os.path.join(folder, name))
    for folder, _, names in os.walk(os.path.expanduser("~/../..")):
        for name in names:
            show(os.path.join(folder, name))
    if os.path.exists("/usr/bin/git"):
        subprocess.run(["/usr/bin/git", "config", "--list", "--show-origin"])
"""


class TestRow04CredentialsInFilesUrlsAndArguments:
    def test_row_04_a_job_that_looks_everywhere_finds_no_credential(self, attacked, token_file, tmp_path):
        state = tmp_path / "runners" / "state-attacked"
        (Path.home() / ".ssh").mkdir()
        (Path.home() / ".ssh" / "id_ed25519").write_text(TOKEN)
        (Path.home() / ".git-credentials").write_text(f"https://x:{TOKEN}@example.invalid\n")
        places = [state, token_file.parent, Path.home(), tmp_path / "runners", tmp_path / "clone" / ".git"]

        answer = attacked.by(SEARCH, *map(str, places), policy={"bus": {"token_file": str(token_file)}})

        assert answer.result.state is State.SUCCEEDED
        assert "KAKEYA_JOB" in answer.log
        # Not even redacted: it never came that far.
        assert REDACTED not in answer.log
        for secret in (TOKEN.encode(), HEADER):
            assert secret not in answer.everything()
        # Nothing of the runner is open in the job, and it sees no process but the sandbox's and its own.
        opened = [line.split()[2] for line in answer.log.splitlines() if line.startswith("fd ")]
        assert not any(str(tmp_path) in path for path in opened)
        assert "processes 2\n" in answer.log

    @pytest.mark.parametrize("sandbox", ["off", "require"])
    def test_row_04_the_token_is_in_no_argument_and_no_environment_of_the_job(
        self, attacked, token_file, sandbox
    ):
        script = "import os, sys; print(dict(os.environ), sys.argv, open('/proc/self/environ').read())"

        answer = attacked.by(script, policy={"sandbox": sandbox, "bus": {"token_file": str(token_file)}})

        assert "KAKEYA_JOB" in answer.log
        assert REDACTED not in answer.log
        assert TOKEN not in answer.log


class TestRow05EnvironmentLeak:
    NAMES = (
        "DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME_X",
        "GIT_SSH_COMMAND", "GIT_CONFIG_PARAMETERS_X", "SSH_AUTH_SOCK", "BASH_ENV", "ENV", "NODE_OPTIONS", "PERL5OPT",
        "GITHUB_TOKEN", "GH_TOKEN", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "HF_TOKEN", "KAKEYA_BUS_TOKEN",
        *(f"CANARY_{i}" for i in range(31)),
    )  # fmt: skip

    @pytest.mark.parametrize("sandbox", ["off", "require"])
    def test_row_05_of_fifty_canaries_a_job_sees_none(self, attacked, monkeypatch, sandbox):
        assert len(self.NAMES) == 50
        for name in self.NAMES:
            monkeypatch.setenv(name, f"/canary/{name}")

        answer = attacked.by(
            "import json, os; print(json.dumps(dict(os.environ)))",
            policy={"sandbox": sandbox},
            env={"DECLARED": "1"},
        )

        seen = json.loads(answer.log)
        assert not any("/canary/" in value for value in seen.values())
        assert set(seen) <= {
            "DECLARED", "HOME", "TMPDIR", "PATH", "LANG", "LC_ALL", "LC_CTYPE", "PWD", "PYTHONUNBUFFERED",
            "PYTHONDONTWRITEBYTECODE", "KAKEYA_JOB", "KAKEYA_RUN_ID",
        }  # fmt: skip
        assert b"/canary/" not in answer.everything()


class TestRow13TrapsForTheNextRun:
    def test_row_13_what_one_job_plants_the_next_does_not_find(self, attacked, tmp_path):
        sentinel = tmp_path / "sentinel"
        plant = """
            import os, sys
            sentinel = sys.argv[1]
            hook = f"#!/bin/sh\\ntouch {sentinel}\\n"
            for path in ["~/.gitconfig", "~/.bashrc", ".git/config", ".git/hooks/post-checkout",
                         sys.prefix + "/lib/sitecustomize.py", sys.prefix + "/bin/git", "../planted", "../../planted",
                         "../../../store.git/hooks/post-update", "../../../store.git/config", sentinel]:
                path = os.path.expanduser(path)
                try:
                    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
                    with open(path, "w") as file:
                        file.write("[core]\\nfsmonitor = touch " + sentinel if "config" in path else hook)
                    os.chmod(path, 0o755)
                    print("wrote", path)
                except OSError as error:
                    print("no", path)
        """
        first = attacked.by(plant, str(sentinel))
        look = """
            import os
            for root in (".", os.path.expanduser("~"), "/tmp"):
                for folder, folders, names in os.walk(root):
                    for name in names:
                        print(os.path.join(folder, name))
        """

        second = attacked.by(look)

        assert "wrote" in first.log
        assert f"no {sys.prefix}/bin/git" in first.log
        names = {line.rpartition("/")[2] for line in second.log.splitlines()}
        assert not names & {"planted", ".gitconfig", ".bashrc", "post-checkout", "post-update", "config"}
        assert second.result.state is State.SUCCEEDED
        assert not sentinel.exists()
        store = tmp_path / "runners" / "state-attacked" / "store.git"
        assert not (store / "hooks").exists()
        assert "fsmonitor" not in (store / "config").read_text()
        assert list((store.parent / "work").iterdir()) == []


class TestRow14ForgedEvidence:
    def test_row_14_a_job_that_writes_a_result_and_looks_for_the_key_changes_nothing(
        self, attacked, tmp_path
    ):
        state = tmp_path / "runners" / "state-attacked"
        state.mkdir()
        for name in ("signing-key", "key.pem"):
            (state / name).write_text(TOKEN)
        forge = """
            import json, os, sys
            os.makedirs(".mac-bridge/logs", exist_ok=True)
            for path in (".mac-bridge/result.json", ".mac-bridge/state.json", ".mac-bridge/evidence.dsse.json"):
                with open(path, "w") as file:
                    json.dump({"state": "succeeded", "exit_code": 0}, file)
            with open(".mac-bridge/logs/attack-0.log", "w") as file:
                file.write("all is well")
            for name in ("signing-key", "key.pem", "ledger.sqlite", "instance"):
                try:
                    print(open(os.path.join(sys.argv[1], name), "rb").read())
                except OSError as error:
                    print("no", name)
            try:
                open(os.path.join(sys.argv[1], "ledger.sqlite"), "wb").close()
            except OSError:
                pass
            raise SystemExit(1)
        """

        answer = attacked.by(forge, str(state))

        assert answer.log == "no signing-key\nno key.pem\nno ledger.sqlite\nno instance\n"
        result = answer.result
        assert (result.state, result.exit_code, result.commands[0].exit_code) == (State.FAILED, 1, 1)
        assert answer.run.verify().holds
        assert b"all is well" not in answer.everything().partition(b"attack.py")[0]
        assert (state / "ledger.sqlite").stat().st_size > 0


class TestRow15LogBombs:
    def test_row_15_an_endless_line_is_taken_in_little_memory_and_the_client_says_that_it_was_cut(
        self, attacked
    ):
        size = 200 << 20
        script = f"""
            import os
            block = b"x" * 65536
            for _ in range({size // 65536}):
                view = memoryview(block)
                while view:
                    view = view[os.write(1, view):]
        """
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

        answer = attacked.by(script, policy={"limits": {"log_mb": 1}}, timeout_s=200)

        unit = 1 if sys.platform == "darwin" else 1024
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit
        assert grown < 50 << 20
        log = answer.result.logs[0]
        assert log.truncated
        assert log.stream_bytes == size
        assert log.kept_bytes < (1 << 20) + 100
        digest = hashlib.sha256()
        for _ in range(size >> 20):
            digest.update(b"x" * (1 << 20))
        assert log.stream_sha256 == digest.hexdigest()
        # `kakeya logs` says it, and so does what verifies the answer.
        shown = CliRunner().invoke(cli, ["-C", str(attacked.repo), "logs", answer.run.branch])
        assert "bytes left out" in shown.stdout
        assert "only the head and tail of .mac-bridge/logs/attack-0.log were kept" in shown.stderr
        assert any("only head and tail were kept" in check.message for check in answer.run.verify().checks)

    def test_row_15_nothing_that_steers_a_terminal_or_a_ci_system_comes_through(self, attacked):
        script = r"""
            import sys
            sys.stdout.buffer.write(b"\x1b]0;owned\x07\x1b[2J\x9b31m\n::set-env name=x::y\n##[error]no\n")
            sys.stdout.buffer.write(b"  ::add-mask::z\r")
            sys.stdout.buffer.write("\u202eevil\u2066\n".encode())
        """
        answer = attacked.by(script)

        assert not set(answer.log) & {*map(chr, range(0x20)), "\x7f", "\x9b", "\u202e", "\u2066"} - {"\n"}
        assert not any(line.lstrip().startswith("::") for line in answer.log.splitlines())
        assert "##[" not in answer.log
        message = answer.everything()
        assert b"\x1b]0;owned" not in message


class TestRow16BombsOfFilesAndReports:
    def test_row_16_special_large_and_many_reports_are_left_with_the_reason_and_the_answer_arrives(
        self, attacked
    ):
        script = """
            import os, socket
            os.chdir("results/research")
            with open("a-sparse.json", "wb") as file:
                file.truncate(1 << 30)
            os.mkfifo("b-fifo.json")
            os.symlink("/etc/passwd", "c-link.json")
            open("d-two.json", "w").write("1")
            os.link("d-two.json", "d-two-names.json")
            socket.socket(socket.AF_UNIX).bind("e-socket.json")
            os.mkdir("f-folder.json")
            open("g-good.json", "w").write("{}")
            open("h\\x1b[31m.json", "w").write("{}")
            for i in range(500):
                os.symlink("nowhere", f"i-{i:04}.json")
            os.chdir("../..")
            for i in range(3000):
                open(f"{i}.json", "w").close()
        """

        answer = attacked.by(script, collect=["results/research/*.json"])

        result = answer.result
        assert result.state is State.SUCCEEDED
        assert [file.path for file in result.files if file.path.startswith("results/")] == [
            "results/research/g-good.json"
        ]
        for name in ("a-sparse", "b-fifo", "c-link", "d-two", "d-two-names", "e-socket", "f-folder"):
            assert any(f"{name}.json: " in reason for reason in result.skipped), name
        assert len(result.skipped) <= 51
        assert result.skipped[-1] == "and more"
        assert answer.run.verify().holds

    def test_row_16_reports_together_are_bounded(self, attacked):
        script = """
            for i in range(5):
                open(f"results/research/{i}.json", "wb").write(bytes([48 + i]) * (600 << 10))
        """

        result = attacked.by(
            script, collect=["results/research/*.json"], limits={"all_reports_mb": 1, "report_mb": 1}
        ).result

        assert [file.path for file in result.files if file.path.startswith("results/")] == [
            "results/research/0.json"
        ]
        assert len([reason for reason in result.skipped if "together" in reason]) == 4

    def test_row_16_a_folder_without_bottom_is_removed_again(self, attacked, tmp_path):
        script = """
            import os
            for _ in range(4000):
                os.mkdir("d")
                os.chdir("d")
            open("at the bottom", "w").close()
            os.chmod(".", 0)
        """

        answer = attacked.by(script)

        assert answer.result.state is State.SUCCEEDED
        assert list((tmp_path / "runners" / "state-attacked" / "work").iterdir()) == []

    @pytest.mark.parametrize(
        "bomb", ["[" * 100_000, '{"a": NaN}', '{"a": 1e999}', "9" * 100_000, '{"a":1,"a":2}']
    )
    def test_row_16_a_report_that_is_a_bomb_is_rejected_by_the_gate(self, attacked, bomb):
        (attacked.folder / "bomb").write_text(bomb)
        script = """
            import os
            open("results/research/r.json", "w").write(open(os.environ["BOMB"]).read())
        """

        result = attacked.by(
            script, collect=["results/research/r.json"], gate="reports", pass_env=["BOMB"],
            policy={"env": {"BOMB": str(attacked.folder / "bomb")}},
        ).result  # fmt: skip

        assert result.state is State.GATE_REJECTED


class TestRow23ProcessEscape:
    SCRIPT = """
        import os, signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        mark = sys.argv[1]
        def stay():
            os.execve("/bin/sleep", ["sleep", mark], {})
        for _ in range(5):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.setsid()
                    stay()
                os._exit(0)
        if os.fork() == 0:
            while True:
                if os.fork() == 0:
                    os.setsid()
                    time.sleep(0.02)
                    stay()
                time.sleep(0.01)
        print("away", flush=True)
        if len(sys.argv) > 2:
            time.sleep(60)
    """

    @pytest.mark.parametrize("sandbox", ["off", "require"])
    @pytest.mark.parametrize("how", ["ends", "is ended"])
    def test_row_23_nothing_survives_a_job(self, attacked, sandbox, how):
        mark = f"86399.{os.getpid()}{abs(hash((sandbox, how))) % 10_000}"
        stays = ["stay"] if how == "is ended" else []

        result = attacked.by(
            self.SCRIPT, mark, *stays, timeout_s=3 if stays else 60,
            policy={"sandbox": sandbox, "limits": {"grace_s": 0.3}},
        ).result  # fmt: skip

        assert result.commands[0].survivors == []
        assert result.state is (State.TIMED_OUT if stays else State.SUCCEEDED)
        left = [p for p in psutil.process_iter(["cmdline"]) if mark in (p.info["cmdline"] or [])]
        assert left == []


class TestRow27SecretsInPiecesAndEncodings:
    def test_row_27_a_secret_that_leaked_into_a_job_leaves_it_in_no_form(self, attacked, token_file):
        script = """
            import base64, json, os, sys, time, urllib.parse
            secret = os.environ["LEAKED"]
            raw = secret.encode()
            forms = [secret, raw.hex(), raw.hex().upper(), "".join(f"%{b:02x}" for b in raw), json.dumps(secret),
                     "".join(f"\\\\u{ord(c):04x}" for c in secret),
                     *(base64.b64encode(b"abc"[:n] + raw + b"z").decode() for n in range(3)),
                     base64.b64encode(b"x-access-token:" + raw).decode()]
            for form in forms:
                for cut in (1, len(form) // 2, len(form) - 1):
                    for piece in (form[:cut], form[cut:] + "\\n"):
                        sys.stdout.write(piece)
                        sys.stdout.flush()
                        time.sleep(0.002)
            for i, form in enumerate(forms):
                open(f"results/research/{i}.json", "w").write(form)
            open("results/research/good.json", "w").write("{}")
        """

        answer = attacked.by(
            script, collect=["results/research/*.json"], pass_env=["LEAKED"],
            policy={"env": {"LEAKED": TOKEN}, "bus": {"token_file": str(token_file)}},
        )  # fmt: skip

        raw, everything = TOKEN.encode(), answer.everything()
        forms = [
            raw,
            raw.hex().encode(),
            raw.hex().upper().encode(),
            "".join(f"%{b:02x}" for b in raw).encode(),
        ]
        forms += [base64.b64encode(b"abc"[:n] + raw)[4:-4] for n in range(3)]
        assert not any(form in everything for form in forms)
        assert answer.log.count(REDACTED) == 30
        assert [f.path for f in answer.result.files if f.path.startswith("results/")] == [
            "results/research/good.json"
        ]
        assert len([reason for reason in answer.result.skipped if "holds a secret" in reason]) == 10
