"""The file that a host program and its server share a token through, and the process that it ends with."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from bridge.common.validation import weakness
from engine.errors import BadInput
from engine.serve.hosting.parent import Parent
from engine.serve.hosting.token_file import read_or_create


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_token_is_private_and_stays(tmp_path):
    previous = os.umask(0)
    try:
        token = read_or_create(tmp_path / "token")
    finally:
        os.umask(previous)
    assert weakness(token) is None
    assert mode(tmp_path / "token") == 0o600
    assert read_or_create(tmp_path / "token") == token == (tmp_path / "token").read_text()
    assert read_or_create(tmp_path / "other") != token
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other", "token"]


@pytest.mark.parametrize("content", ["", "\n"])
def test_an_empty_file_is_replaced(tmp_path, content):
    """Whoever opened the file before, while everybody could, reads no token from it."""
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(0o666)
    with file.open() as opened:
        token = read_or_create(file)
        assert opened.read() == content
    assert (file.read_text(), mode(file)) == (token, 0o600)


def test_a_token_of_the_host_is_used_and_made_private(tmp_path, caplog):
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    file.chmod(0o644)
    assert read_or_create(file) == "0123456789abcdef"
    assert mode(file) == 0o600
    assert "readable for others" in caplog.text
    assert "0123456789abcdef" not in caplog.text


@pytest.mark.parametrize("is_there", [True, False])
def test_all_servers_get_the_same_token(tmp_path, is_there):
    file = tmp_path / "token"
    if is_there:
        file.touch()
    with ThreadPoolExecutor(16) as pool:
        tokens = set(pool.map(read_or_create, [file] * 64))
    assert tokens == {file.read_text()}


def to_a_token(file):
    file.with_name("elsewhere").write_text("0123456789abcdef")
    file.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (to_a_token, "symbolic link"),
        (lambda file: file.symlink_to("absent"), "symbolic link"),
        (lambda file: file.mkdir(), "Is a directory"),
        (os.mkfifo, "regular file"),
        (lambda file: file.write_bytes(b"x" * 5000), "too large"),
        (lambda file: file.write_bytes(b" " * 5000), "too large"),
    ],
)
def test_what_is_no_file_for_a_token_is_refused(tmp_path, make, reason):
    make(tmp_path / "token")
    with pytest.raises(BadInput, match=reason):
        read_or_create(tmp_path / "token")
    assert not (tmp_path / "absent").exists()


def test_a_folder_that_is_absent_or_read_only_is_refused(tmp_path):
    with pytest.raises(BadInput, match="No such file"):
        read_or_create(tmp_path / "absent" / "token")
    tmp_path.chmod(0o500)
    if os.access(tmp_path, os.W_OK):
        pytest.skip("nothing is read-only for this user")
    with pytest.raises(BadInput, match="Permission denied"):
        read_or_create(tmp_path / "token")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(tmp_path):
    (tmp_path / "token").write_text("0123456789abcdef")
    os.chown(tmp_path / "token", 1, -1)
    with pytest.raises(BadInput, match="another user"):
        read_or_create(tmp_path / "token")


def test_a_younger_process_is_not_the_parent():
    """It got the id of a parent that has ended."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as younger:
        with pytest.raises(BadInput, match="younger"):
            Parent(younger.pid)
        younger.communicate(b"\n")
    assert not Parent(os.getppid()).has_ended
