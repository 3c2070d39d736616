"""A network of namespaces behind a switch in this process, which delays and loses packets where it is told to.

Linux can do the same with ``tc netem``, which many kernels of containers and virtual machines leave out.
"""

import fcntl
import heapq
import os
import random
import selectors
import struct
import subprocess
import threading
import time
from contextlib import suppress

TUNSETIFF = 0x400454CA
TAP_WITHOUT_HEADER = 0x1002
FRAME_BYTES = 1 << 16
ADDRESS_BYTES = 6


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Switch:
    """Hosts with the addresses 10.99.0.1, 10.99.0.2 and so on, each a network namespace with the interface ``eth0``."""

    def __init__(self, names):
        self.names = names
        self.delay_s, self.jitter_s, self.loss = 0.0, 0.0, 0.0
        self._random = random.Random(7)
        self._ports = []
        self._waiting = []  # (when, number, port, frame)
        self._known = {}  # ports by the address behind them
        self._sent = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._forward)

    def __enter__(self):
        try:
            for number, name in enumerate(self.names):
                self._plug(name, f"kk{os.getpid()}v{number}", f"10.99.0.{number + 1}/24")
        except BaseException:
            self._unplug()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._closed.set()
        self._thread.join()
        self._unplug()

    def _plug(self, name, interface, address):
        port = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        self._ports.append(port)
        fcntl.ioctl(port, TUNSETIFF, struct.pack("16sH", interface.encode(), TAP_WITHOUT_HEADER))
        ip("netns", "add", name)
        ip("link", "set", interface, "netns", name, "name", "eth0")
        ip("-n", name, "addr", "add", address, "dev", "eth0")
        for each in ("lo", "eth0"):
            ip("-n", name, "link", "set", each, "up")

    def _unplug(self):
        for port in self._ports:
            os.close(port)
        for name in self.names:
            with suppress(subprocess.CalledProcessError):
                ip("netns", "del", name)

    def _forward(self):
        with selectors.DefaultSelector() as ready:
            for port in self._ports:
                ready.register(port, selectors.EVENT_READ)
            while not self._closed.is_set():
                wait = self._waiting[0][0] - time.monotonic() if self._waiting else 0.2
                for key, _ in ready.select(min(max(wait, 0), 0.2)):
                    with suppress(OSError):  # its cable is pulled
                        self._receive(key.fd, os.read(key.fd, FRAME_BYTES))
                while self._waiting and self._waiting[0][0] <= time.monotonic():
                    *_, port, frame = heapq.heappop(self._waiting)
                    with suppress(OSError):
                        os.write(port, frame)

    def _receive(self, port, frame):
        to, sender = frame[:ADDRESS_BYTES], frame[ADDRESS_BYTES : 2 * ADDRESS_BYTES]
        self._known[sender] = port
        others = [each for each in self._ports if each != port]
        for other in [self._known[to]] if to in self._known else others:
            if self._random.random() < self.loss:
                continue
            late = self.delay_s + self._random.uniform(-self.jitter_s, self.jitter_s)
            self._sent += 1
            heapq.heappush(self._waiting, (time.monotonic() + late, self._sent, other, frame))
