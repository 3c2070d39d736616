import random

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from engine.dflash.stops import Stops, ends_of
from engine.dflash.text import Detokenizer
from engine.errors import BadInput
from engine.stop_strings import StopStrings

END = 256


def byte_tokenizer():
    """A token a byte, and one that ends: every character beyond ASCII is split."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<end>")


TOKENIZER = byte_tokenizer()


def ids(text):
    return TOKENIZER.encode(text, add_special_tokens=False)


def blocks(tokens, sizes):
    left = list(tokens)
    while left:
        size = next(sizes)
        yield left[:size]
        del left[:size]


def through(stops, tokens, sizes):
    """Return tokens, text and whether it stopped, of a stream in blocks."""
    kept, text = [], ""
    for block in blocks(tokens, sizes):
        cut = stops.take(block)
        kept, text = [*kept, *cut.tokens], text + cut.text
        if cut.stopped:
            return kept, text, True
    return kept, text + stops.flush(), False


def sizes(seed):
    rng = random.Random(seed)
    while True:
        yield rng.randint(1, 9)


def ones():
    while True:
        yield 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("text", "stop", "kept", "shown"),
    [
        ("one STOP two", ["STOP"], "one STOP", "one "),
        ("one STO two", ["STOP"], "one STO two", "one STO two"),
        ("one STOSTOP two", ["STOP"], "one STOSTOP", "one STO"),
        ("ends in STO", ["STOP"], "ends in STO", "ends in STO"),
        ("a\n\nb", ["\n\n", "\nb"], "a\n\n", "a"),
        ("xabcdy", ["bcd", "abcde", "cd"], "xabcd", "xa"),
        ("né✓z", ["é✓"], "né✓", "n"),
        ("né✓z", ["✓"], "né✓", "né"),
        ("STOP", ["STOP"], "STOP", ""),
        ("🙂🙂x", ["x"], "🙂🙂x", "🙂🙂"),
    ],
)
def test_the_same_end_however_tokens_are_grouped(text, stop, kept, shown, seed):
    found = through(Stops(TOKENIZER, strings=stop), ids(text), sizes(seed) if seed else ones())
    assert found == (ids(kept), shown, kept != text or shown != text)


def test_no_beginning_of_a_stop_is_shown_before_it_is_refuted():
    stops, shown = Stops(TOKENIZER, strings=["STOP!"]), ""
    for token in ids("abSTOx STOP"):
        shown += stops.take([token]).text
        assert not any(shown.endswith("STOP!"[:n]) for n in range(1, 5))
    assert shown == "abSTOx "
    assert stops.take(ids("!")).stopped
    assert stops.flush() == ""


class Quiet:
    """Parts of a text: what is between two stars is not visible."""

    def __init__(self, strings):
        self._found, self._inside = StopStrings(strings), False

    @property
    def stopped(self):
        return self._found.matched

    def add(self, text):
        for letter in text:
            self._inside ^= letter == "*"
            if not self._inside and letter != "*":
                self._found.add(letter)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a *STOP* b STOP c", "a *STOP* b STOP"),
        ("*STOP", "*STOP"),
        ("*é STOP ✓*STOP 🙂", "*é STOP ✓*STOP"),
    ],
)
def test_a_stop_in_a_part_that_is_not_visible_ends_nothing(text, kept, seed):
    """The text is given out as it is: its reader splits it too."""
    stops = Stops(TOKENIZER, strings=["STOP"], splitter=Quiet(["STOP"]))
    found = through(stops, ids(text), sizes(seed) if seed else ones())
    assert found == (ids(kept), kept, text != "*STOP")
    assert stops.matched == ("STOP" if text != "*STOP" else None)


@pytest.mark.parametrize("strings", [(), ("STOP",)])
def test_a_stop_token_is_the_last_and_not_in_the_text(strings):
    stops = Stops(TOKENIZER, strings=strings)
    cut = stops.take([*ids("abST"), END, *ids("cd")])
    assert (list(cut.tokens), cut.text, cut.stopped) == ([*ids("abST"), END], "abST", True)
    chosen = Stops(TOKENIZER, tokens=ids("c"), strings=strings)
    assert chosen.take([END, *ids("bcd")]).tokens == (END, *ids("bc"))
    assert not Stops(TOKENIZER, tokens=(), strings=strings).take([END]).stopped


@pytest.mark.parametrize("seed", range(5))
def test_text_is_that_of_the_whole_and_never_taken_back(seed):
    rng = random.Random(seed)
    text = "".join(rng.choice("ab é✓🙂\n") for _ in range(300))
    stream, shown = Detokenizer(TOKENIZER), ""
    for block in blocks(ids(text), sizes(seed)):
        shown += stream.add(block)
        assert text.startswith(shown)
    assert shown + stream.flush() == text


def spelling_tokenizer():
    """As SentencePiece vocabularies are: a token for each byte, which spells what has none of its own."""
    names = [*(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *"abcdefgh", "\u2581ab", "<0xZZ>"]
    bpe = models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[], byte_fallback=True)
    made = Tokenizer(bpe)
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=made)


SPELLING = spelling_tokenizer()


def spelled(text):
    """Return tokens for a text: bytes for what is not in the vocabulary."""
    vocabulary, tokens = SPELLING.get_vocab(), []
    for char in text.replace(" ", "\u2581"):
        tokens += [vocabulary[char]] if char in vocabulary else list(char.encode())
    return tokens


@pytest.mark.parametrize("seed", range(5))
def test_characters_in_byte_tokens_are_given_once_each_is_complete(seed):
    rng = random.Random(seed)
    text = "".join(rng.choice("ab éñ✓日本🙂🧪\n") for _ in range(300)).lstrip()
    stream, shown, read = Detokenizer(SPELLING), "", b""
    for block in blocks(spelled(text), sizes(seed) if seed else ones()):
        shown += stream.add(block)
        read += b"".join(bytes([t]) if t < 256 else SPELLING.convert_ids_to_tokens(t).encode() for t in block)
        complete = read.replace("\u2581".encode(), b" ").decode("utf-8", "ignore")
        assert shown == complete
    assert shown + stream.flush() == text


@pytest.mark.parametrize(
    "data",
    [
        b"a\xc3\xa9\xffb",
        b"\xf0\x9f\x99\x82\xe6\x97",
        b"\xe6\x97a\x80\x80\x80\x80\x80a",
        b"ab\xff\xff\xff\xff\xe2\x82\xac",
        "日本語".encode() * 20 + b"\xf0",
    ],
)
def test_byte_tokens_that_are_no_text_show_as_in_utf8(data):
    vocabulary = SPELLING.get_vocab()
    tokens = [vocabulary[chr(byte)] if chr(byte) in "ab" else byte for byte in data]
    for size in (1, 2, len(tokens)):
        stream = Detokenizer(SPELLING)
        shown = "".join(stream.add(tokens[at : at + size]) for at in range(0, len(tokens), size))
        assert shown + stream.flush() == data.decode("utf-8", "replace")


def test_a_word_behind_byte_tokens_keeps_its_space():
    stream = Detokenizer(SPELLING)
    tokens = [*"é".encode(), SPELLING.convert_tokens_to_ids("\u2581ab"), *"é".encode()]
    assert "".join(stream.add([token]) for token in tokens) + stream.flush() == "é abé"


def test_bytes_that_are_no_text():
    tokens = [t for byte in (b"a", b"\xff" * 9, b"b", b"\xe2\x82") for t in _bytes(byte)]
    alone, together = Detokenizer(TOKENIZER), Detokenizer(TOKENIZER)
    one_by_one = "".join(alone.add([t]) for t in tokens) + alone.flush()
    assert one_by_one == together.add(tokens) + together.flush() == TOKENIZER.decode(tokens)


def _bytes(data):
    """Return the tokens of bytes: the alphabet's order is the order of its characters."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    char = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [TOKENIZER.convert_tokens_to_ids(char[b]) for b in data]


def test_ends_of_tokenizers():
    class Several:
        eos_token_ids = (3, 4)

    assert ends_of(Several()) == {3, 4}
    assert ends_of(TOKENIZER) == {END}
    assert ends_of(None) == frozenset()


def test_what_cannot_be_a_stop():
    with pytest.raises(BadInput, match="empty"):
        Stops(TOKENIZER, strings=["a", ""])
    with pytest.raises(BadInput, match="tokenizer"):
        Stops(None, strings=["a"])
    assert Stops(TOKENIZER, strings="ab").strings == ("ab",)
    assert Stops(None).take([1, 2]).text == ""
