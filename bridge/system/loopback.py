"""Listens on loopback, for servers that only this machine may reach."""

from __future__ import annotations

import socket

from bridge.errors import InfrastructureError

HOST = "127.0.0.1"


def listen(port: int, option: str) -> socket.socket:
    """Return a socket that listens on a port of this machine; 0 takes a free one.

    Raises:
        InfrastructureError: which names the option that chooses another port, if the port cannot be used.
    """
    from bridge.common.listening import listen as listen_at  # noqa: PLC0415 - only servers have uvicorn

    try:
        return listen_at(HOST, port)
    except OSError as error:
        fix = f"Choose another one with {option}; 0 takes a free one."
        raise InfrastructureError(f"port {port} cannot be used: {error.strerror}", fix=fix) from error


def names(port: int) -> list[str]:
    """Return the ``Host`` headers that are valid for a server on this port."""
    return [f"{name}:{port}" for name in (HOST, "localhost")]
