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
    name = "echo"

    def __init__(self, _settings, _metrics, wake):
        self.wake, self.jobs = wake, queue.SimpleQueue()
        self.models, self.active, self.waiting, self.cancelled = {}, [], 0, 0
        self.stop = lambda: self.jobs.put(None)
        self.start = threading.Thread(target=self.run, daemon=True).start
        self.health, self.stats = Health, lambda: {"cancelled": self.cancelled}
        self.memory = lambda: Memory(caches=7, device={"echo_bytes": 5})

    def load(self, name):
        if name == "absent":
            raise BadInput("it is not here")
        (loading := Future()).set_result(
            self.models.setdefault(name, Model(name, ByteTokenizer(), 512, 257, 257))
        )
        return loading

    def submit(self, jobs):
        list(map(self.jobs.put, jobs))

    def run(self):
        while (job := self.jobs.get()) is not None:
            self.active.append(job)
            self.answer(job, self.models[job.model])
            self.active.remove(job)

    def answer(self, job, model):
        prompt, most = model.decode(job.ids), job.options.max_tokens
        walk = model.grammars.walk(job.options.grammar) if job.options.grammar else None
        tokens = iter(model.encode(ANSWER * most if ENDLESS in prompt else ANSWER))
        for left in range(most, 0, -1):
            if job.cancelled:
                self.cancelled += 1
                return
            token = int(walk.masks([], 257, left)[0].argmax()) if walk else next(tokens)
            if walk:
                walk.commit([token])
            ended = walk.ended if walk else most - left + 1 == len(ANSWER) and ENDLESS not in prompt
            reason = "stop" if ended else "length" if left == 1 else None
            piece = Piece(job.index, model.decode([token]), 1, None, reason, {"cached_tokens": 0})
            broken = BROKEN in prompt and left < most
            job.emit(Failed(job.index, ApiError(422, "It broke.")) if broken else piece)
            self.wake()
            if reason or broken:
                return
            time.sleep(0.01 if ENDLESS in prompt else 0)
