"""Keeps other people's text apart from a chat template's own: only the template can write a tokenizer's marks.

A mark is a token with a meaning of its own, such as ``<|im_end|>`` or ``<think>``. A message that contains a mark's
text would otherwise end its turn and forge others. So a separator is put into each mark of a message before the
template renders it. Afterwards, the text around separators is encoded by a tokenizer without marks, as any other text.

A template that writes its marks as plain text, such as Llama 2's ``[INST]``, cannot be protected: it has no tokens for
them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

# Three letters that occur together in no language. Template filters do not change or escape them. Other people's text
# loses them, and nobody would gain anything by writing them.
SEPARATOR = "\ua518\ua5d9\ua606"
ESCAPED = re.compile(re.escape(json.dumps(SEPARATOR)[1:-1]), re.IGNORECASE)  # by JSON in ASCII
BRACKETS = "<>[](){}|/\uff5c"
# Tokens of Gemma's vocabulary that are text, although they look like marks.
HTML = frozenset({
    "a", "b", "blockquote", "br", "caption", "code", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i",
    "img", "li", "ol", "p", "pre", "s", "span", "strong", "sub", "sup", "table", "tbody", "td", "tfoot", "th",
    "thead", "tr", "u", "ul",
})  # fmt: skip
# Words of JSON schemas. Templates compare them, and they cannot be other people's text.
WORDS = frozenset({
    "type", "string", "number", "integer", "boolean", "object", "array", "null", "properties", "required", "items",
    "enum", "description", "title", "default", "function", "name", "parameters", "arguments", "id",
})  # fmt: skip


class Marks:
    """The marks of a tokenizer. Not thread-safe, as the tokenizer is not."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def ids(self) -> dict[int, str]:
        """The text of each mark, by its token."""
        tokenizer = self._tokenizer
        added = getattr(tokenizer, "added_tokens_decoder", None) or {}
        template = getattr(tokenizer, "chat_template", None)
        names = ("think_start", "think_end", "tool_call_start", "tool_call_end")
        used = [getattr(tokenizer, name, None) or "" for name in names]
        used.append(template if isinstance(template, str) else "")
        return {
            number: token.content
            for number, token in added.items()
            if len(token.content) > 1 and (token.special or _looks_like_mark(token.content, used))
        }

    def turn(self, turn: Mapping[str, Any]) -> dict[str, Any]:
        """Return a turn of a conversation, with the marks in its texts set apart; its role is not a text."""
        apart = {name: value if name == "role" else self.apart(value) for name, value in turn.items()}
        if turn["role"] == "assistant" and isinstance(turn.get("content"), str):
            apart["content"] = self._answer(turn["content"])
        return apart

    def _answer(self, text: str) -> str:
        """Set marks in a model's own text apart, except those around a thought at its beginning."""
        start, end = (getattr(self._tokenizer, name, None) for name in ("think_start", "think_end"))
        blank = text[: len(text) - len(text.lstrip())]
        if not start or not end or not text.startswith(blank + start):
            return self._apart(text)
        thought, mark, rest = text[len(blank + start) :].partition(end)
        return "".join((blank, start, self._apart(thought), mark, self._apart(rest)))

    def apart(self, value: Any) -> Any:
        """Return a text, or JSON with such texts, whose marks the template cannot take for its own."""
        if isinstance(value, str):
            return self._apart(value)
        if isinstance(value, dict):
            return {self.apart(key): self.apart(item) for key, item in value.items()}
        return [self.apart(item) for item in value] if isinstance(value, list | tuple) else value

    def _apart(self, text: str) -> str:
        text = text.replace(SEPARATOR, "")
        begins, ends_of_marks, inner = self._fragments
        if not text or (text.isalnum() and text not in inner and self._have_signs):
            return text
        while found := self._finder.encode(text, add_special_tokens=False):
            starts = [at for number, (at, _) in zip(found.ids, found.offsets, strict=True) if number]
            if not starts:
                break
            ends = [*starts[1:], len(text)]
            pieces = (text[at] + SEPARATOR + text[at + 1 : end] for at, end in zip(starts, ends, strict=True))
            text = text[: starts[0]] + "".join(pieces)
        inside = text in inner and text not in WORDS
        before = inside or any(text[:n] in ends_of_marks for n in range(2, self._longest))
        behind = inside or any(text[-n:] in begins for n in range(2, self._longest))
        return SEPARATOR * before + text + SEPARATOR * behind

    def encode(self, text: str, *, begins: bool = False) -> list[int]:
        """Return the tokens of a rendered text; the template's marks become their tokens, all other text plain ones.

        If it ``begins`` a prompt, the tokenizer's own opening and closing tokens are added.
        """
        ids = self._encode(text)
        if not begins:
            return ids
        opened, bare = self._tokenizer.encode("a"), self._tokenizer.encode("a", add_special_tokens=False)
        at = next((i for i in range(len(opened)) if opened[i : i + len(bare)] == bare), 0)
        return [*opened[:at], *ids, *opened[at + len(bare) :]]

    def _encode(self, text: str) -> list[int]:
        text = ESCAPED.sub(SEPARATOR, text)
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None or (SEPARATOR not in text and not self._are_normalized):
            pieces = text.split(SEPARATOR)
            return [int(t) for each in pieces for t in self._tokenizer.encode(each, add_special_tokens=False)]
        backend.no_truncation()
        backend.no_padding()
        found, ids, at, first = backend.encode(text, add_special_tokens=False), [], 0, 0
        for i, (token, (start, end)) in enumerate(zip(found.ids, found.offsets, strict=True)):
            # A normalizer may turn other people's text into a mark; the template's own is written out.
            if token in self.ids and text[start:end].strip() == self.ids[token].strip():
                ids += [*self._plain(text[at:start], found.ids[first:i], at), token]
                at, first = end, i + 1
        return [*ids, *self._plain(text[at:], found.ids[first:], at)]

    def _plain(self, text: str, tokens: list[int], at: int) -> list[int]:
        """Return the tokens of a text between marks, which is encoded as ``tokens`` if nobody wrote marks into it."""
        if SEPARATOR not in text and not any(token in self.ids for token in tokens):
            return tokens
        text = text.replace(SEPARATOR, "")
        encoded = list(self._encoded(text, begins=at == 0))
        if any(token in self.ids for token in encoded):  # the vocabulary has a mark among its plain tokens
            encoded = [token for character in text for token in self._encoded(character, begins=False)]
        return [token for token in encoded if token not in self.ids]

    def _encoded(self, text: str, *, begins: bool) -> Iterator[int]:
        """Yield the tokens of a text in which nothing is a mark."""
        # Some tokenizers treat the beginning of the whole text differently.
        lead = "" if begins else SEPARATOR
        for token in self._without_marks.encode(lead + text, add_special_tokens=False).tokens:
            if token != SEPARATOR:
                yield self._tokenizer.backend_tokenizer.token_to_id(token)

    @cached_property
    def _without_marks(self) -> Any:
        """The tokenizer without marks; the separator takes their place as what text is split at."""
        from tokenizers import AddedToken, Tokenizer

        state, marks = json.loads(self._tokenizer.backend_tokenizer.to_str()), set(self.ids.values())
        state |= {"truncation": None, "padding": None, "post_processor": None}
        kept = [token for token in state["added_tokens"] if token["content"] not in marks]
        tokenizer = Tokenizer.from_str(json.dumps({**state, "added_tokens": []}))
        tokenizer.add_tokens([AddedToken(**{k: v for k, v in each.items() if k != "id"}) for each in kept])
        tokenizer.add_tokens([AddedToken(SEPARATOR, normalized=False)])
        return tokenizer

    @cached_property
    def _finder(self) -> Any:
        """A tokenizer that knows nothing but the marks. It finds them in time that grows with the text alone."""
        from tokenizers import AddedToken, Tokenizer, models

        finder = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))  # noqa: S106
        finder.add_tokens([AddedToken(text, normalized=False) for text in {*self.ids.values()}])
        return finder

    @cached_property
    def _are_normalized(self) -> bool:
        """Whether other spellings of a mark may count as the mark."""
        added = self._tokenizer.added_tokens_decoder
        return self._tokenizer.backend_tokenizer.normalizer is not None and any(
            added[number].normalized for number in self.ids
        )

    @cached_property
    def _have_signs(self) -> bool:
        """Whether all marks begin and end with a sign, so that no piece of one consists of letters and digits."""
        return not any(mark[0].isalnum() or mark[-1].isalnum() for mark in self.ids.values())

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.ids.values()), default=0)

    @cached_property
    def _fragments(self) -> tuple[set[str], set[str], set[str]]:
        """The beginnings and ends of marks, and what marks are without their brackets.

        Between pieces of a template, or beside other people's text, these make a mark: ``<`` and ``think`` and ``>``.
        """
        marks = set(self.ids.values())
        begins = {mark[:n] for mark in marks for n in range(2, len(mark))}
        ends = {mark[n:] for mark in marks for n in range(1, len(mark) - 1)}
        inner = set()
        for mark in marks:
            last = len(mark) - len(mark.rstrip(BRACKETS))
            lead = len(mark) - len(mark.lstrip(BRACKETS))
            inner |= {mark[i : len(mark) - j] for i in range(1, lead + 1) for j in range(1, last + 1)}
        return begins, ends, inner


def _looks_like_mark(text: str, used: list[str]) -> bool:
    """Return whether a token that is not special is a mark: it has brackets, or a sign and the template uses it."""
    if text.strip() != text or not text.strip("_").strip() or text.isalnum():
        return False
    if any(text in each for each in used):
        return True
    return text[0] in BRACKETS and text[-1] in BRACKETS and text.strip("</>").lower() not in HTML
