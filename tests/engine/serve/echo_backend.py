"""A backend without an engine: its answers are a fixed text or, with a grammar, the first token that a mask allows."""

import queue
import threading
import time
from concurrent.futures import Future

from engine.errors import BadInput
from engine.serve.backend import Failed, Health, Memory, Model, Piece
from engine.serve.errors import ApiError
from tests.engine.serve.byte_tokenizer import ByteTokenizer

ANSWER, ENDLESS, BROKEN = "All is well.", "endless", "broken"  # the last two: of prompts


class EchoBackend:
    name, lacks = "echo", ()

    def __init__(self, _settings, _metrics, wake):
        self.wake, self.jobs = wake, queue.SimpleQueue()
        self.models, self.active, self.waiting, self.cancelled = {}, [], 0, 0
        self.submit = lambda jobs: [*map(self.jobs.put, jobs)]
        self.stop = lambda: self.jobs.put(None)
        self.start = threading.Thread(target=self.run, daemon=True).start
        self.health, self.stats = Health, lambda: {"cancelled": self.cancelled}
        self.memory = lambda: Memory(caches=7, device={"echo_bytes": 5})

    def takes(self, _spec):
        return True

    def code_bytes(self, _spec, _dim):
        return None

    def load(self, name):
        if name == "absent":
            raise BadInput("it is not here")
        self.models.setdefault(name, Model(name, ByteTokenizer(), 512, 257, 257))
        (loading := Future()).set_result(self.models[name])
        return loading

    def run(self):
        while (job := self.jobs.get()) is not None:
            self.active.append(job)
            for event in self.answer(job, self.models[job.model]):
                job.emit(event)
                self.wake()
            self.active.remove(job)

    def answer(self, job, model):
        prompt, most, grammar = model.decode(job.ids), job.options.max_tokens, job.options.grammar
        state = grammar.start() if grammar else None
        tokens = model.encode(ANSWER * most if ENDLESS in prompt else ANSWER)
        reason, left = None, most
        while not (reason or job.cancelled):
            if BROKEN in prompt and left < most:
                yield Failed(job.index, ApiError(422, "It broke."))
                return
            token = int(state.masks([])[0].argmax()) if state else tokens.pop(0)
            if state:
                (token,) = state.fit([token], left, None)
                state.commit([token])
            left -= 1
            reason = "stop" if (state.ended if state else not tokens) else None if left else "length"
            yield Piece(job.index, model.decode([token]), 1, None, reason, {"cached_tokens": 0})
            time.sleep(0.01 if ENDLESS in prompt else 0)
        self.cancelled += not reason
