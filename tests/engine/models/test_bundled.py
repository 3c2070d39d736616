"""The bundled pairs, as they are shipped: they load, decode exactly, recall, and their drafters are accepted."""

import hashlib
import json

import pytest

from engine import models
from engine.checkpoints.published import PAIRS
from engine.dflash import Stats, stream_generate
from engine.models.registry import DATA
from engine.mx import mx
from engine.train.data.corpus import File
from training import card, tokenizer

# Begins like nothing in the standard library, so that it is held out whatever the corpus was.
OPENING = '''import sys


class Ledger:
    """Entries by account, with a running balance."""

    def __init__(self, opening=0):
        self.entries = []
        self.balance = opening

    def add(self, account, amount):
        """Book an amount."""
        self.entries.append((account, amount))
        self.balance += amount

    def total(self, account):
'''


@pytest.fixture(scope="module", params=PAIRS)
def pair(request):
    return models.load(request.param)


def decode(pair, **options):
    stats, tokens = Stats(), []
    for step in stream_generate(pair.target, pair.draft, pair.tokenizer, OPENING, max_tokens=96, **options):
        stats.add(step)
        tokens += step.tokens
    return tokens, stats


def test_the_weights_are_those_of_the_card():
    card = json.loads((DATA / "card.json").read_text(encoding="utf-8"))
    files = sorted(DATA.glob("*/*/model.safetensors"))
    found = {str(f.relative_to(DATA)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    assert found == card["weights"]
    real = DATA / "smollm2-135m" / "draft" / "model.safetensors"
    assert real.stat().st_size < 16e6
    assert sum(f.stat().st_size for f in files if f != real) < 40e6


@pytest.mark.long
def test_speculation_changes_no_token(pair):
    """Prompt and answer are longer than the hybrid's window."""
    plain, _ = decode(pair, block_size=1, lookup=False)
    assert len(pair.tokenizer.encode(OPENING)) + len(plain) > 160
    for options in ({"lookup": False, "adaptive": False}, {"adaptive": False}, {}, {"rollback": "carry"}):
        assert decode(pair, **options)[0] == plain


@pytest.mark.rows(1)
def test_drafts_are_accepted(pair):
    _, stats = decode(pair, lookup=False, adaptive=False)
    assert stats.as_dict()["tau"] > 1.2


@pytest.mark.long
def test_needles_are_recalled(pair):
    words = tokenizer.load(pair.parts["target"].folder)
    files = [File("python", "a.py", OPENING * 40)]
    rows = card.recall(pair.target, words, files, count=10, lengths=(256,))
    found = {row["kind"]: row["hits"] for row in rows}
    assert sum(found.values()) >= 15, found


def test_another_secret_gives_another_answer(pair):
    """The answer comes from the prompt: the same question without the needle is not answered."""
    notes = "Note 1234: this paragraph is unrelated padding and does not contain the answer.\n" * 4
    question = "\nQuestion: what is the secret code? Answer:"
    answers = set()
    for secret in ("PINE-4821", "OAK-1953"):
        prompt = f"{notes}\nIMPORTANT: the secret code is {secret}.\n\n{notes}{question}"
        ids = pair.tokenizer.encode(prompt)
        steps = stream_generate(pair.target, None, pair.tokenizer, ids, max_tokens=9, lookup=False)
        answers.add("".join(step.text for step in steps).strip()[: len(secret)])
    assert len(answers) == 2


def test_the_reference_package_loads_the_drafter(pair, monkeypatch):
    package = pytest.importorskip("dflash.model_mlx")
    folder = pair.parts["draft"].folder
    monkeypatch.setattr(package, "snapshot_download", lambda *_, **__: str(folder))
    theirs = package.load_draft("bundled")
    theirs.bind(pair.target)
    tokens = mx.array([[5, 3, 3, 3]])
    taps = mx.random.normal((1, 6, pair.draft.config.taps_size), key=mx.random.key(0))
    bound = pair.draft.bind(pair.target)
    ours = bound.propose(5, taps, bound.make_cache(), 3).logits
    theirs.set_dtype(mx.float32)
    expected = theirs(tokens, taps, theirs.make_cache(), logits_start=1)
    assert mx.allclose(ours, expected, atol=1e-4)
