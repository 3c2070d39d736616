"""Grammars that an answer must follow: their texts and trial, and where an answer stands in one."""
