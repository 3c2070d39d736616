"""Reads a request's body within its limits of size and time."""

import asyncio

from starlette.requests import ClientDisconnect, Request

from engine.serve.errors import ApiError
from engine.serve.settings import Settings


async def read_body(request: Request, settings: Settings) -> bytes:
    """Return the body.

    Raises:
        ApiError: 413, it is too large; 408, it arrives too slowly.
    """
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > settings.max_body:
        raise _too_large(settings)
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_seconds):
            async for part in request.stream():
                body += part
                if len(body) > settings.max_body:
                    raise _too_large(settings)
    except TimeoutError as error:
        message = f"The request did not arrive within {settings.body_seconds:g} s."
        raise ApiError(408, message, code="timeout", headers={"Connection": "close"}) from error
    except ClientDisconnect as error:
        raise ApiError(400, "The connection ended before the request did.", code="disconnected") from error
    return bytes(body)


def _too_large(settings: Settings) -> ApiError:
    message = f"The request is larger than the {settings.max_body} bytes that this server takes."
    return ApiError(413, message, code="too_large", headers={"Connection": "close"})
