"""The HTTP server: OpenAI's API over the engine. :mod:``engine.cli.serve`` starts it."""
