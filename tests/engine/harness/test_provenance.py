import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.checkpoints import digests
from engine.harness import provenance

SCHEMA = Path(__file__).parents[3] / "bridge" / "schemas" / "report-3.json"


def test_the_code_is_known_by_its_sources(tmp_path):
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "__init__.py").write_text("one = 1\n")
    before = provenance.code(folder, ())
    assert (before["commit"], before["dirty"]) == (None, None)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_bytes(b"compiled")
    assert provenance.code(folder, ()) == before
    (folder / "__init__.py").write_text("one = 2\n")
    changed = provenance.code(folder, ())["digest"]
    shared = tmp_path / "bridge" / "reports"
    shared.mkdir(parents=True)
    (shared / "__init__.py").write_text("three = 3\n")
    assert len({before["digest"], changed, provenance.code(folder, [shared])["digest"]}) == 3


def test_a_checkout_names_its_commit_and_whether_it_was_dirty(tmp_path):
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "__init__.py").write_text("one = 1\n")

    def git(*argv):
        who = ("-c", "user.name=x", "-c", "user.email=x@y")
        done = subprocess.run(["git", *who, *argv], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q")
    assert provenance.code(folder, ())["commit"] is None
    git("add", "engine")
    git("commit", "-qm", "x")
    head = git("rev-parse", "HEAD")
    assert (provenance.code(folder, ())["commit"], provenance.code(folder, ())["dirty"]) == (head, False)
    (tmp_path / "notes.txt").write_text("elsewhere")
    assert provenance.code(folder, ())["dirty"] is False
    (folder / "new.py").write_text("two = 2\n")
    assert provenance.code(folder, ())["dirty"] is True


def test_a_sandbox_that_hides_the_supply_is_one_that_says_nothing_of_it(monkeypatch):
    def hidden():
        raise FileNotFoundError(2, "No such file or directory", "/sys/class/power_supply")

    monkeypatch.setattr(provenance.psutil, "sensors_battery", hidden, raising=False)
    monkeypatch.setattr(provenance.sys, "platform", "linux")
    assert provenance.power() == {}


def test_an_installed_library_is_as_its_record_says_until_somebody_changes_it(tmp_path, monkeypatch):
    info = tmp_path / "library-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: library\nVersion: 1\n")
    (tmp_path / "library.py").write_bytes(b"x = 1\n")
    digest = "dx4wsX_QpMhcqFTGAMpcbEBW4hFWLJqEBXRMPSVRXhE"
    (info / "RECORD").write_text(f"library.py,sha256={digest},6\nlibrary-1.dist-info/RECORD,,\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    changed = provenance.modified("library")
    assert changed == ["library.py"]
    right = base64.urlsafe_b64encode(hashlib.sha256(b"x = 1\n").digest()).rstrip(b"=").decode()
    script = f"../../../bin/library,sha256={digest},6\n"
    (info / "RECORD").write_text(f"{script}library.py,sha256={right},6\nlibrary-1.dist-info/RECORD,,\n")
    assert provenance.modified("library") == []
    (tmp_path / "library.py").unlink()
    assert provenance.modified("library") == ["library.py"]
    assert provenance.modified("no-such-library") == []


def test_a_model_is_known_by_what_was_read(tmp_path):
    for name in ("model.safetensors", "config.json", "tokenizer.json", "README.md"):
        (tmp_path / name).write_text(name)
    found = digests.model("target", "tiny", tmp_path, "bfloat16")
    line = f"{hashlib.sha256(b'config.json').hexdigest()} config.json\n"
    assert found["config"] == "sha256:" + hashlib.sha256(line.encode()).hexdigest()
    (tmp_path / "README.md").write_text("other words")
    assert digests.model("target", "tiny", tmp_path, "bfloat16") == found
    (tmp_path / "tokenizer.json").write_text("other merges")
    again = digests.model("target", "tiny", tmp_path, "bfloat16")
    assert again == {**found, "tokenizer": again["tokenizer"]} != found
    (tmp_path / "tokenizer.json").unlink()
    assert digests.model("draft", "tiny", tmp_path, "bfloat16")["tokenizer"] is None


@pytest.mark.long
def test_what_the_engine_writes_is_what_the_schema_says(tmp_path, python):
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    out = tmp_path / "rd.json"
    done = python("-m", "engine", "codec", "rd", "--n-vectors", "64", "--out", str(out))
    assert done.returncode == 0, done.stderr
    schema = json.loads(SCHEMA.read_text())
    validator.check_schema(schema)
    report = json.loads(out.read_text())
    validator(schema).validate(report)
    del report["identity"]["code"]["digest"]
    assert [error.message for error in validator(schema).iter_errors(report)]
