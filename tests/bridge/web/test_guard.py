"""What the server answers, to whom, and with which headers."""

from __future__ import annotations

import anyio
import pytest

HEADERS = {
    "x-content-type-options": "nosniff", "x-frame-options": "DENY", "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin", "cache-control": "no-store",
}  # fmt: skip
PATHS = (
    "/",
    "/trends",
    "/style.css",
    "/page.js",
    "/run/mac-bridge/none",
    "/log/none",
    "/nothing",
    "/?page=x",
)


def test_every_answer_has_the_policy_and_only_reading_is_possible(web):
    for path in PATHS:
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
            check(web, path, method)


def check(web, path, method):
    answer = web.ask(path, method)

    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    if method not in ("GET", "HEAD"):
        assert answer.status_code == 405
        assert answer.headers["allow"] == "GET, HEAD"
    else:
        assert answer.status_code == (404 if "no" in path else 200)
        assert method == "GET" or answer.content == b""


HOSTS = (
    "evil.example", "evil.example:1340", "127.0.0.1", "127.0.0.1:1341", "localhost:1340.evil.example", "[::1]:1340",
    "0.0.0.0:1340", "127.0.0.1:1340, localhost:1340", "",
)  # fmt: skip


def test_other_hosts_are_refused(web):
    assert {host: web.ask("/", Host=host).status_code for host in HOSTS} == dict.fromkeys(HOSTS, 421)


def test_our_own_names_are_answered(web):
    assert web.ask("/", Host="localhost:1340").status_code == 200
    assert web.ask("/", Host="LOCALHOST:1340").status_code == 200


def test_two_hosts_are_none(web):
    sent = []
    scope = {
        "type": "http", "method": "GET", "raw_path": b"/", "path": "/", "query_string": b"",
        "headers": [(b"host", b"localhost:1340"), (b"host", b"evil.example")],
    }  # fmt: skip

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request"}

    anyio.run(web.app, scope, receive, send)

    assert sent[0]["status"] == 421


def test_a_websocket_is_closed(web):
    sent = []

    async def send(message):
        sent.append(message)

    anyio.run(web.app, {"type": "websocket", "headers": []}, None, send)

    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize(
    ("site", "mode", "status"),
    [("cross-site", "no-cors", 403), ("cross-site", "cors", 403), ("cross-site", "navigate", 200),
     ("same-origin", "cors", 200), ("none", "navigate", 200)],
)  # fmt: skip
def test_other_sites_may_link_and_load_nothing(web, site, mode, status):
    assert web.ask("/style.css", Sec_Fetch_Site=site, Sec_Fetch_Mode=mode).status_code == status


def test_an_address_that_is_too_long_is_refused(web):
    assert web.ask("/?" + "x" * 1000).status_code == 414
    assert web.ask("/run/" + "x" * 1000).status_code == 414


def test_a_fault_of_ours_is_a_page_and_shows_no_trace(web, monkeypatch, capsys):
    monkeypatch.setattr(web.watch, "snapshot", None)

    with pytest.raises(AttributeError):
        web.ask("/")

    assert "this is a bug: AttributeError" in capsys.readouterr().err
