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

# Three letters that occur together in no language. Template filters neither change nor escape them. They are
# removed from other people's text.
SEPARATOR = "\ua518\ua5d9\ua606"
ESCAPED = re.compile(re.escape(json.dumps(SEPARATOR)[1:-1]), re.IGNORECASE)  # by JSON in ASCII
BRACKETS = "<>[](){}|/\uff5c"
# Tokens of Gemma's vocabulary that are text, although they look like marks.
HTML = frozenset({
    "a", "b", "blockquote", "br", "caption", "code", "div", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i",
    "img", "li", "ol", "p", "pre", "s", "span", "strong", "sub", "sup", "table", "tbody", "td", "tfoot", "th",
    "thead", "tr", "u", "ul",
})  # fmt: skip
# Words of JSON schemas. Templates compare these words with constants, and no stranger chooses them.
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
        """Return a turn of a conversation with the marks in its texts set apart. Its role is left unchanged."""
        apart = {name: value if name == "role" else self.apart(value) for name, value in turn.items()}
        if turn["role"] == "assistant" and isinstance(turn.get("content"), str):
            apart["content"] = self._answer(turn["content"])
        return apart

    def _answer(self, text: str) -> str:
        """Set marks in a model's own text apart, except the marks around a thought at the beginning."""
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
        begins, ends, inner = self._fragments
        inside = text in inner and text not in WORDS
        if len(text) < 2 or not self._signs.search(text):  # noqa: PLR2004 - no piece of a mark that counts is shorter
            return SEPARATOR + text + SEPARATOR if inside else text
        count = 1
        while count:  # marks that overlap others are found once those are set apart
            text, count = self._pattern.subn(lambda mark: mark[0][0] + SEPARATOR + mark[0][1:], text)
        before = inside or any(text[:n] in ends for n in range(2, self._longest))
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
        if backend is None:
            pieces = text.split(SEPARATOR)
            return [int(t) for each in pieces for t in self._tokenizer.encode(each, add_special_tokens=False)]
        if SEPARATOR in text or (self._are_normalized and self._spelled_otherwise(text)):
            return self._apart_from_marks(text)
        return [int(token) for token in self._tokenizer.encode(text, add_special_tokens=False)]

    def _spelled_otherwise(self, text: str) -> bool:
        """Return whether the tokenizer's normalizer turns a text with another spelling into a mark."""
        backend = self._tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        encoding = backend.encode(text, add_special_tokens=False)
        return any(
            token in self.ids and text[start:end].strip() != self.ids[token].strip()
            for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
        )

    def _apart_from_marks(self, text: str) -> list[int]:
        """Return the tokens of a text in which a mark counts only in its exact spelling."""
        pieces, marks = [], []
        at = 0
        for mark in self._pattern.finditer(text):
            pieces.append(text[at : mark.start()])
            marks.append(self._numbers[mark[0]])
            at = mark.end()
        pieces = [piece.replace(SEPARATOR, "") for piece in (*pieces, text[at:])]
        for i, number in enumerate(marks):
            token = self._tokenizer.added_tokens_decoder[number]
            pieces[i] = pieces[i].rstrip() if token.lstrip else pieces[i]
            pieces[i + 1] = pieces[i + 1].lstrip() if token.rstrip else pieces[i + 1]
        ids: list[int] = []
        written = iter(marks)
        for token in self._encoded(SEPARATOR.join(pieces)):
            if token is None:
                ids.append(next(written))
            elif token not in self.ids:
                ids.append(token)
            else:  # the vocabulary has a mark among its plain tokens
                letters = (each for letter in self.ids[token] for each in self._encoded(SEPARATOR + letter))
                ids += [each for each in letters if each is not None and each not in self.ids]
        return ids

    def _encoded(self, text: str) -> Iterator[int | None]:
        """Yield the tokens of a text in which nothing is a mark; None for a separator."""
        tokenizer, numbers = self._without_marks
        for token in tokenizer.encode(text, add_special_tokens=False).ids:
            yield numbers.get(token, token)

    @cached_property
    def _without_marks(self) -> tuple[Any, dict[int, int | None]]:
        """The tokenizer without marks, and a map from its token ids to the original ids where the two differ.

        The separator takes the place of the marks: text is split there. Its number is None.
        """
        from tokenizers import AddedToken, Tokenizer

        backend, marks = self._tokenizer.backend_tokenizer, set(self.ids.values())
        state = json.loads(backend.to_str()) | {"truncation": None, "padding": None, "post_processor": None}
        others = [token for token in state["added_tokens"] if token["content"] not in marks]
        vocabulary = state["model"]["vocab"]
        if isinstance(vocabulary, dict):  # which may have gaps, into which new tokens would fall
            vocabulary |= {token["content"]: token["id"] for token in others}
            vocabulary[SEPARATOR] = max(*vocabulary.values(), *self.ids) + 1
        tokenizer = Tokenizer.from_str(json.dumps({**state, "added_tokens": []}))
        tokenizer.add_tokens([AddedToken(**{k: v for k, v in each.items() if k != "id"}) for each in others])
        tokenizer.add_tokens([AddedToken(SEPARATOR, normalized=False)])
        numbers: dict[Any, int | None] = {
            tokenizer.token_to_id(each["content"]): each["id"] for each in others
        }
        return tokenizer, numbers | {tokenizer.token_to_id(SEPARATOR): None}

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {text: number for number, text in self.ids.items()}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        """Finds the longest mark at a place, in time that does not grow with the number of marks."""
        tree: dict[str, Any] = {}
        for mark in self._numbers:
            node = tree
            for character in mark:
                node = node.setdefault(character, {})
            node[""] = {}
        return re.compile(_alternatives(tree) if tree else r"(?!)")

    @cached_property
    def _signs(self) -> re.Pattern[str]:
        """A pattern of the characters with which marks begin or end: any text with a part of a mark has one."""
        ends = {character for mark in self._numbers for character in (mark[0], mark[-1])}
        return re.compile(f"[{re.escape(''.join(sorted(ends)))}]" if ends else r"(?!)")

    @cached_property
    def _are_normalized(self) -> bool:
        """Whether other spellings of a mark may count as the mark."""
        added = self._tokenizer.added_tokens_decoder
        return self._tokenizer.backend_tokenizer.normalizer is not None and any(
            added[number].normalized for number in self.ids
        )

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.ids.values()), default=0)

    @cached_property
    def _fragments(self) -> tuple[set[str], set[str], set[str]]:
        """The beginnings and ends of marks, and marks without their brackets.

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


def _alternatives(tree: dict[str, Any]) -> str:
    """Return a pattern that matches the words in a tree of characters. An empty character ends a word."""
    if len(tree) == 1 and "" in tree:
        return ""
    branches = [
        re.escape(character) + _alternatives(tree[character]) for character in sorted(tree) if character
    ]
    return f"(?:{'|'.join(branches)}){'?' if '' in tree else ''}"


def _looks_like_mark(text: str, used: list[str]) -> bool:
    """Return whether an ordinary token is a mark: it has brackets, or it has a sign and the template uses it."""
    if text.strip() != text or not text.strip("_").strip() or text.isalnum():
        return False
    if any(text in each for each in used):
        return True
    return text[0] in BRACKETS and text[-1] in BRACKETS and text.strip("</>").lower() not in HTML
