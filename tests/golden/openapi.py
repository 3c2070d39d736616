"""The OpenAPI document of the server, without the version of the package."""

from __future__ import annotations

import json

from engine.serve.app import make_app
from engine.serve.scheduler.thread import EngineThread
from engine.serve.server import Server
from engine.serve.settings import Settings


def texts() -> dict[str, str]:
    """Return the document as JSON. No model is loaded."""
    document = make_app(Server(Settings(models=("tiny",)), EngineThread)).openapi()
    document["info"]["version"] = "VERSION"
    return {"openapi.json": json.dumps(document, indent=1, ensure_ascii=False) + "\n"}
