"""Compiles a client's grammar in a process of its own, under limits, before the server does.

llguidance limits the cost of most grammars, but not of all: a ``multipleOf`` with a large number takes minutes and
gigabytes. So the server first lets another process compile a grammar. If that process exceeds its limits, the system
ends it, and the request is refused. Otherwise compiling costs the server about as much as the process.

The process prints how much memory compiling took, whether or not the grammar is valid.
"""

import os
import re
import resource
import sys
from threading import Event

import llguidance

from bridge.common import process

CPU_SECONDS = 2  # including the interpreter, which takes a tenth of a second
MEMORY = 192 << 20  # bytes, including the interpreter's
WALL_SECONDS = 60.0  # on a machine that is busy with other things
# Tokens by number. Clients cannot use them: in their schemas, they are ordinary text.
TOKENS = re.compile(r"<\[[0-9^, -]*\]>")


def limits() -> llguidance.LLParserLimits:
    """Return llguidance's limits for a grammar. A mask takes at most some 10 ms with them."""
    return llguidance.LLParserLimits(
        initial_lexer_fuel=200_000, step_lexer_fuel=100_000, max_lexer_states=50_000
    )


def cost(grammar: str, cancelled: Event | None = None) -> int | None:
    """Return the bytes that compiling a grammar takes; None if it exceeds the limits, or is ``cancelled``.

    Blocks for at most ``WALL_SECONDS``.
    """
    argv = (sys.executable, "-P", "-m", __name__)
    printed = process.answer(*argv, text=grammar, timeout=WALL_SECONDS, cancelled=cancelled)
    return int(printed) if printed is not None else None


class _Bytes:
    """A vocabulary of bytes: compiling does not depend on the vocabulary."""

    eos_token_id, bos_token_id, unk_token_id = 256, None, None
    special_token_ids = (256,)
    tokens = (*(bytes([i]) for i in range(256)), b"<end>")

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


def main() -> None:
    """Compile the grammar on standard input."""
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()))
    grammar = TOKENS.sub("/x/", sys.stdin.read())
    before = _most_memory()
    llguidance.LLMatcher(tokenizer, grammar, log_level=0, limits=limits()).compute_bitmask()
    sys.stdout.write(str(_most_memory() - before))


def _most_memory() -> int:
    unit = 1 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    main()
