"""Answers of the engine's thread, without HTTP."""

import queue
import time

from engine.serve.backend import Job, Options


def answers(thread, model, prompts, draft):
    """Ask for greedy answers to several prompts at once; return the last report of each."""
    waiting = []
    for ids in prompts:
        events = queue.Queue()
        options = Options(24, temperature=0.0, token_ids=True, draft=draft)
        thread.submit([Job(0, model, ids, options, events.put, time.monotonic() + 60)])
        waiting.append(events)
    last = []
    for events in waiting:
        event = events.get(timeout=60)
        while not event.finish_reason:
            event = events.get(timeout=60)
        last.append(event.report)
    return last
