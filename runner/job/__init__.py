"""Runs one job: its folder, process, sandbox, output and reports."""
