"""The HTTP server: OpenAI's API over the engine. ``engine.cli.serve`` starts it."""
