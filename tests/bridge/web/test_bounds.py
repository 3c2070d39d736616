"""What a live server keeps, and whom it answers: bounded, whatever lies on the bus and whoever connects."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("starlette", reason="needs the extra [web]")

import uvicorn

from bridge.bus.history import RequestBranch
from bridge.bus.wire import State
from bridge.common import listening
from bridge.reports.views.model import Table
from bridge.show.trends import Figure, Value
from bridge.verify.verdict import Conclusion
from bridge.web import app as web
from bridge.web import figures, runs
from bridge.web.figures import Figures
from bridge.web.runs import Answered, Runs


def branch(name):
    return RequestBranch(name, name, name, None, None, has_foreign_commits=False)


def table(letters):
    return Table("a table", ("text",), (("x" * letters,),))


def test_row_102_what_is_kept_of_opened_pages_is_bounded_by_bytes(monkeypatch):
    monkeypatch.setattr(runs, "CACHE_BYTES", 100_000)
    kept = Runs(watch=None)
    made = []

    def verified(branch):
        made.append(branch.name)
        return Answered(None, (table(200_000 if branch.name == "huge" else 30_000),))

    monkeypatch.setattr(kept, "load", verified)
    for name in ("a", "b", "c", "a", "d", "a", "b", "huge", "a", "a"):
        assert kept.answered(branch(name)).checks

    # Four are too many, and the one that was not looked at for longest goes; the huge one leaves no room for another.
    assert made == ["a", "b", "c", "d", "b", "huge", "a"]


def test_row_102_of_one_answer_some_figures_are_kept_and_claimed_ones_first(monkeypatch):
    monkeypatch.setattr(figures, "MAX_FIGURES", 3)
    value = Value(1.0, "b", "at", Conclusion(State.SUCCEEDED), counts=True)
    found = [Figure("p", f"f{i}", "", "", i >= 8, value) for i in range(10)]
    monkeypatch.setattr(figures, "numeric_figures", lambda _: found)

    class Read:
        def source(self, branch):
            return branch

    row = SimpleNamespace(branch="b", request_branch=branch("b"), state=State.SUCCEEDED)
    shown = Figures(Read(), lambda: SimpleNamespace(ended=[row]))
    assert shown.step()
    assert {one.trend.name for one in shown.trends("f*")} == {"f8", "f9", "f0"}


class Pages:
    """Answers at once, but for /slow, which it never answers, and /soon, which it answers once it may."""

    def __init__(self):
        self.asked = []
        self.may_answer = threading.Event()

    async def __call__(self, scope, receive, send):
        self.asked.append(scope["path"])
        if scope["path"] == "/reads":
            while (await receive()).get("more_body"):
                pass
        if scope["path"] == "/slow":
            await asyncio.sleep(300)
        if scope["path"] == "/soon":
            await asyncio.to_thread(self.may_answer.wait, 60)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def pages():
    return Pages()


@pytest.fixture
def serve(pages):
    """Start a server with our connections, and return the function that connects to it."""
    started = []

    def start(connection=web.Connection):
        listener = socket.create_server(("127.0.0.1", 0))
        config = listening.configure(pages, web.MOST_CONNECTIONS, connection=connection)
        config.lifespan = "off"
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        started.append((server, thread, listener))
        return lambda: socket.create_connection(listener.getsockname(), timeout=30)

    yield start
    for server, thread, listener in started:
        server.should_exit = server.force_exit = True
        thread.join(30)
        listener.close()


def ask(connection):
    connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    return connection.recv(100).split(b"\r\n")[0]


@pytest.mark.long
def test_row_103_idle_connections_make_way(serve, monkeypatch):
    monkeypatch.setattr(web, "MOST_CONNECTIONS", 8)
    connect = serve()
    used = connect()
    assert b"200" in ask(used)
    idle = []
    for i in range(30):
        idle.append(connect())
        if i % 2:
            idle[-1].sendall(b"GET / HT")

    for _ in range(3):
        with connect() as one:
            assert b"200" in ask(one)
    # The oldest were closed.
    assert is_closed(used)
    assert is_closed(idle[0])
    for one in (used, *idle):
        one.close()


def test_row_103_a_connection_that_asks_for_nothing_is_closed(serve, monkeypatch):
    monkeypatch.setattr(listening, "HEAD_S", 0.2)
    connect = serve()
    with connect() as silent, connect() as slow:
        slow.sendall(b"GET / HT")
        assert is_closed(silent)
        assert is_closed(slow)


BODY = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
CHUNK = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"
SLOW_BODY = BODY.replace(b" / ", b" /reads ")
SLOW_CHUNK = CHUNK.replace(b" / ", b" /reads ")
EXPECT = SLOW_BODY.replace(b"\r\n\r\n{", b"\r\nExpect: 100-continue\r\n\r\n")


@pytest.mark.long
@pytest.mark.parametrize("sent", [SLOW_BODY, BODY, CHUNK, SLOW_CHUNK, EXPECT])
def test_row_141_a_request_whose_body_is_missing_makes_way(sent, serve, monkeypatch):
    monkeypatch.setattr(web, "MOST_CONNECTIONS", 8)
    connect = serve()
    held = []
    for _ in range(30):
        held.append(connect())
        held[-1].sendall(sent)

    for _ in range(3):
        with connect() as one:
            assert b"200" in ask(one)
    assert is_closed(held[0])
    for one in held:
        one.close()


@pytest.mark.rows(1)
@pytest.mark.parametrize("sent", [SLOW_BODY, SLOW_CHUNK])
def test_row_141_a_body_that_is_late_is_not_waited_for(sent, serve, monkeypatch):
    monkeypatch.setattr(listening, "BODY_S", 0.3)
    connect = serve()
    with connect() as slow:
        slow.sendall(sent)
        assert is_closed(slow)


def test_row_141_a_whole_body_is_answered_however_late_the_answer_is(serve, pages, monkeypatch, wait_for):
    monkeypatch.setattr(listening, "BODY_S", 0.3)
    connect = serve()
    with connect() as one:
        one.sendall(b"POST /soon HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{")
        one.sendall(b"}")
        wait_for(lambda: pages.asked == ["/soon"])
        time.sleep(0.5)  # longer than a body may take
        pages.may_answer.set()
        assert b"200" in one.recv(100)


def test_row_141_connections_leave_files_for_everything_else(monkeypatch):
    monkeypatch.setattr(listening.resource, "getrlimit", lambda _: (256, 256))

    config = listening.configure(None)

    assert config.limit_concurrency + config.backlog <= 192


@pytest.mark.parametrize(("stalled_s", "status"), [(0.0, b"200"), (None, b"503")])
def test_row_103_a_stalled_connection_makes_way_only_where_it_may(
    serve, pages, monkeypatch, wait_for, stalled_s, status
):
    monkeypatch.setattr(web, "MOST_CONNECTIONS", 2)
    connect = serve(type("Stalled", (listening.Connection,), {"stalled_s": stalled_s}))
    with connect() as slow:
        slow.sendall(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_for(lambda: pages.asked == ["/slow"])
        with connect() as other:
            assert status in ask(other)


def test_row_103_what_became_idle_makes_way_for_a_later_request(serve, pages, monkeypatch, wait_for):
    monkeypatch.setattr(web, "MOST_CONNECTIONS", 3)
    connected = []

    class Counted(web.Connection):
        def connection_made(self, transport):
            super().connection_made(transport)
            connected.append(transport)

    connect = serve(Counted)
    with connect() as first, connect() as second:
        for busy in (first, second):
            busy.sendall(b"GET /soon HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_for(lambda: pages.asked == ["/soon", "/soon"])
        with connect() as last:
            wait_for(lambda: len(connected) == 3)
            pages.may_answer.set()
            assert [b"200" in busy.recv(100) for busy in (first, second)] == [True, True]
            assert b"200" in ask(last)


def is_closed(connection):
    """Wait until the server has closed a connection."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            if connection.recv(1000) == b"":
                return True
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
    return False


def test_row_102_two_logs_are_read_at_a_time(monkeypatch):
    kept = Runs(watch=SimpleNamespace(git=None))
    entered, leave, most = [], threading.Event(), []

    def read(_git, _first, tip):
        entered.append(tip)
        most.append(len(entered))
        leave.wait(60)
        entered.pop()
        return []

    monkeypatch.setattr("bridge.web.runs.history.commits_between", read)
    threads = [threading.Thread(target=kept.log, args=(branch("a"),)) for _ in range(6)]
    for thread in threads:
        thread.start()
    while len(entered) < 2:
        time.sleep(0.01)
    leave.set()
    for thread in threads:
        thread.join(60)

    assert len(most) == 6
    assert max(most) == 2
