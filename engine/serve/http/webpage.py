"""The chat page at ``/``: plain HTML with one script and one style sheet, which may load nothing else."""

from pathlib import Path

from starlette.responses import Response

FOLDER = Path(__file__).with_name("page")
FILES = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def answer(path: str) -> Response:
    """Return the page, its script or its style sheet."""
    name, kind = FILES[path]
    text = (FOLDER / name).read_text(encoding="utf-8")
    return Response(text, media_type=f"{kind}; charset=utf-8", headers=HEADERS)
