"""Grammars that an answer must follow: their texts, trial compilation, and the answer's position in one."""
