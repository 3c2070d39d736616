"""From the engine's thread to the client: how often the loop is woken, and what is written at once."""

import asyncio
import json
import threading

import httpx

from engine.serve.http.streams import EventStream, event
from engine.serve.server import Outbox


def test_one_wake_up_is_for_all_that_was_put_in():
    async def run():
        loop, outbox, calls = asyncio.get_running_loop(), Outbox(), []
        real = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *call: (calls.append(call), real(*call))
        outbox.open()
        one, other = asyncio.Queue(), asyncio.Queue()

        def engine():
            for number in range(3):
                outbox.put(one, number)
                outbox.put(other, -number)
            outbox.wake()
            outbox.wake()  # on its way already, or nothing to deliver

        thread = threading.Thread(target=engine)
        thread.start()
        thread.join()  # the loop cannot deliver before
        assert len(calls) == 1
        assert [await one.get() for _ in range(3)] == [0, 1, 2]
        assert [await other.get() for _ in range(3)] == [0, -1, -2]
        outbox.put(one, 3)
        outbox.wake()
        assert len(calls) == 2
        assert await one.get() == 3

    asyncio.run(run())


def test_nothing_is_lost_between_two_threads():
    async def run():
        outbox, queue, count = Outbox(), asyncio.Queue(), 20_000
        outbox.open()

        def engine():
            for number in range(count):
                outbox.put(queue, number)
                outbox.wake()

        thread = threading.Thread(target=engine)
        thread.start()
        async with asyncio.timeout(60):
            assert [await queue.get() for _ in range(count)] == list(range(count))
        thread.join()

    asyncio.run(run())


def test_loop_that_is_closed_is_no_failure():
    outbox = Outbox()

    async def run():
        outbox.open()
        return asyncio.Queue()

    outbox.put(asyncio.run(run()), 1)
    outbox.wake()
    outbox.wake()


def test_ready_events_are_written_at_once_and_none_waits_for_the_next():
    async def run():
        sent, gate = [], asyncio.Event()

        async def events(flush):
            yield b"1"
            yield b"2"
            await flush()  # what pieces() does before it waits
            assert sent[-1] == b"12"
            gate.set()
            yield b"3"
            yield b"4"

        async def send(message):
            if message["type"] == "http.response.body":
                sent.append(message["body"])

        async def receive():
            await asyncio.Event().wait()

        await EventStream(events, lambda: None, 5.0)({}, receive, send)
        assert gate.is_set()
        assert sent == [b"12", b"34"]

    asyncio.run(run())


def test_stream_with_nothing_to_say_shows_that_it_is_alive():
    async def run():
        sent, pinged = [], asyncio.Event()

        async def events(_):
            yield b"begin "
            await pinged.wait()
            yield b"end"

        async def send(message):
            sent.append(message.get("body", b""))
            if b"".join(sent).count(b"ping ") == 3:
                pinged.set()

        async def receive():
            await asyncio.Event().wait()

        async with asyncio.timeout(60):
            await EventStream(events, lambda: None, 5.0, ping=b"ping ", quiet_seconds=0.01)({}, receive, send)
        assert b"".join(sent) == b"begin ping ping ping end"

    asyncio.run(run())


def test_stream_that_writes_all_the_time_needs_no_ping():
    async def run():
        quiet = 0.3
        sent, silences, written = [], [], asyncio.get_running_loop().time()

        async def events(flush):
            for _ in range(20):
                yield b"x"
                await flush()
                await asyncio.sleep(0.02)

        async def send(message):
            nonlocal written
            now = asyncio.get_running_loop().time()
            sent.append(message.get("body", b""))
            silences.append(now - written)
            written = now

        async def receive():
            await asyncio.Event().wait()

        await EventStream(events, lambda: None, 60.0, ping=b"ping", quiet_seconds=quiet)({}, receive, send)
        # On a busy machine it may have been silent for long enough.
        assert not [
            body for body, silence in zip(sent, silences, strict=True) if b"ping" in body and silence < quiet
        ]
        assert b"".join(sent).replace(b"ping", b"") == b"x" * 20

    asyncio.run(run())


def test_client_that_reads_nothing_ends_its_answers():
    async def run():
        ended = []

        async def events(_):
            yield b"1"

        async def send(message):
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

        async def receive():
            await asyncio.Event().wait()

        async with asyncio.timeout(60):
            await EventStream(events, lambda: ended.append(True), 0.05)({}, receive, send)
        assert ended

    asyncio.run(run())


def test_an_event_is_one_line_to_clients_that_end_lines_as_unicode_does():
    data = {"text": "".join(map(chr, (*range(0x100), 0x2028, 0x2029)))}
    line, *rest = httpx.Response(200, content=event(data)).iter_lines()
    assert json.loads(line.removeprefix("data: ")) == data
    assert rest == [""]
