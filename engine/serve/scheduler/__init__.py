"""The engine's thread: which models are loaded, which requests run, and what each computes next."""
