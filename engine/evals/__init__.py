"""Evaluations: what caches, codecs, drafters and restored prompts do to a model, as reports for the gate."""
