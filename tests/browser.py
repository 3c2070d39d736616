"""A real Chromium, driven through its own pipe: no driver and no package is needed beside it."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.system import program

CHROMIUM = program("chromium", "google-chrome", "chromium-browser")

# Chromium reads commands from descriptor 3 and answers on 4.
_START = """
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(fd), fcntl.F_DUPFD, 20) for fd in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--disable-extensions", "--hide-scrollbars", "--mute-audio",
)  # fmt: skip


class NavigatingError(Exception):
    """The page went away before an expression had its value."""


class Browser:
    """One page of one browser. What its console and its policies said is noted."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        argv = [sys.executable, "-c", _START, str(commands), str(answers), CHROMIUM, *_FLAGS]
        self._process = subprocess.Popen(
            [*argv, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands)
        os.close(answers)
        self._read = b""
        self._last = 0
        self._session: str | None = None
        self.events: list[tuple[str, dict]] = []
        self._profile = profile
        until = time.monotonic() + 60
        while not (pages := self._pages()):
            assert time.monotonic() < until, "the browser has no page"
            time.sleep(0.02)
        attached = self._call("Target.attachToTarget", targetId=pages[0], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self._call(f"{domain}.enable")

    def _pages(self) -> list[str]:
        targets = self._call("Target.getTargets")["targetInfos"]
        return [target["targetId"] for target in targets if target["type"] == "page"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(120)
        os.close(self._commands)
        os.close(self._answers)
        # Its socket lies in a folder of its own, because a path to a socket must be short.
        with suppress(OSError):
            folder = (self._profile / "SingletonSocket").readlink().parent
            if "org.chromium." in folder.name:
                shutil.rmtree(folder)

    def open(self, url: str) -> None:
        """Go to a page and wait until it has loaded."""
        self.events.clear()
        self._call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str):
        """Return the value of an expression on the page."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str, timeout: float = 60) -> None:
        """Wait until an expression is true on the page."""
        until = time.monotonic() + timeout
        while not self._holds(condition):
            assert time.monotonic() < until, f"it did not happen in time: {condition}"
            time.sleep(0.02)

    def _holds(self, condition: str) -> object:
        """Return the value of a condition, and None while the page is being replaced by another one."""
        try:
            answer = self._call(
                "Runtime.evaluate", expression=condition, returnByValue=True, awaitPromise=True
            )
        except NavigatingError:
            return None
        return answer["result"].get("value") if "exceptionDetails" not in answer else None

    def press(self, key: str, *, modifiers: int = 0) -> None:
        """Press a key; 8 as the modifiers holds Shift."""
        code, text = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), "ArrowDown": (40, "")}.get(
            key, (ord(key[0].upper()), key)
        )
        common = {"key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self._call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        self._call("Input.dispatchKeyEvent", type="keyUp", **common)

    def write(self, text: str) -> None:
        """Type text where the focus is."""
        self._call("Input.insertText", text=text)

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Set the size of the page and the colours that its reader prefers."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, path: Path) -> None:
        """Write a picture of what is in view."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def said(self) -> list[str]:
        """Return what was logged, thrown or stopped since the page was opened."""
        self.run("1")
        found = []
        for method, params in self.events:
            if method == "Log.entryAdded":
                found.append(params["entry"]["text"])
            elif method == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"]["text"])
            elif method == "Runtime.consoleAPICalled":
                found.append(f"console: {params['args']}")
            elif method == "Audits.issueAdded":
                found.append(json.dumps(params["issue"]))
        return found

    def errors(self) -> list[str]:
        """Return the errors that were logged or thrown since the page was opened."""
        self.run("1")
        return [
            params["entry"]["text"] if method == "Log.entryAdded" else params["exceptionDetails"]["text"]
            for method, params in self.events
            if method == "Runtime.exceptionThrown"
            or (method == "Log.entryAdded" and params["entry"]["level"] == "error")
        ]

    def asked(self) -> list[str]:
        """Return the addresses that were asked for since the page was opened."""
        return [p["request"]["url"] for method, p in self.events if method == "Network.requestWillBeSent"]

    def _call(self, method: str, /, **params: object) -> dict:
        self._last += 1
        message: dict[str, object] = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                if any(word in str(answer.get("error")) for word in ("context", "navigated")):
                    raise NavigatingError(answer["error"])
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            if "method" in answer:
                self.events.append((answer["method"], answer["params"]))

    def _next(self, timeout: float = 60) -> dict:
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._answers], [], [], timeout)
            assert ready, "the browser does not answer"
            piece = os.read(self._answers, 1 << 16)
            assert piece, "the browser has ended"
            self._read += piece
        message, _, self._read = self._read.partition(b"\0")
        return json.loads(message)
