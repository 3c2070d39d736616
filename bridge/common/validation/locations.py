"""Finds the location in a document that a validation error is about, and the names that a model knows there."""

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

Models = Sequence[Any]
_KEY = "[key]"


class Location:
    """The place of a fault in a document.

    Attributes:
        parts: the names and positions that lead to it. Pydantic's own names of a union's members are left out.
        models: what may stand at the place that contains it.
        of_key: whether the fault is about a name, and not about its value.
        tagged: whether a member of a union decided about the value itself.
    """

    def __init__(self, fault: Mapping[str, Any], model: Any, document: object) -> None:
        self.parts: list[str] = []
        self.of_key = self.tagged = False
        inside: Models = [model]
        self.models: Models = inside
        here: object = document
        for i, part in enumerate(fault["loc"]):
            is_last = i == len(fault["loc"]) - 1
            if part == _KEY:
                self.of_key = True
            elif _holds(here, part):
                self.parts.append(str(part))
                self.tagged = False
                self.models, inside = inside, [*_members(inside, part)]
                here = here[part]  # type: ignore[index]
            elif is_last and fault["type"] in ("missing", "missing_argument"):
                self.parts.append(str(part))
                self.models = inside
            else:
                self.tagged = True
                inside = _narrowed(inside, part)
        if fault["type"].startswith("union_tag") and (tag := (fault.get("ctx") or {}).get("discriminator")):
            self.parts.append(str(tag).strip("'"))

    @property
    def name(self) -> str:
        """The place as people write it, such as ``steps.0.argv``."""
        return ".".join(self.parts)

    def known(self, also: Mapping[Any, Iterable[str]]) -> Iterator[str]:
        """Yield the names that are known beside the faulty one. ``also`` are further names by model."""
        for model in _flat(self.models):
            if isinstance(model, type) and issubclass(model, BaseModel):
                yield from (field.alias or name for name, field in model.model_fields.items())
            yield from also.get(model, ()) if isinstance(model, type) else ()


def _holds(here: object, part: object) -> bool:
    if isinstance(here, dict):
        return part in here
    return isinstance(here, list | tuple) and isinstance(part, int) and 0 <= part < len(here)


def _flat(models: Models) -> Iterator[Any]:
    """Yield the members of unions, without their annotations."""
    for model in models:
        origin: Any = get_origin(model)
        if origin is Annotated:
            yield from _flat([get_args(model)[0]])
        elif origin in (Union, types.UnionType):
            yield from _flat(get_args(model))
        else:
            yield model


def _members(models: Models, part: object) -> Iterator[Any]:
    """Yield the types that may stand at a name or a position."""
    for model in _flat(models):
        if isinstance(model, type) and issubclass(model, BaseModel):
            for name, field in model.model_fields.items():
                if part in (name, field.alias):
                    yield field.annotation
        elif arguments := get_args(model):
            yield arguments[-1] if get_origin(model) is dict else arguments[0]


def _narrowed(models: Models, tag: object) -> Models:
    """Return the members of a union that have this tag; all members if none has it."""
    mine = [
        model
        for model in _flat(models)
        if isinstance(model, type)
        and issubclass(model, BaseModel)
        and (tag == model.__name__ or _has_tag(model, tag))
    ]
    return mine or models


def _has_tag(model: type[BaseModel], tag: object) -> bool:
    annotations = (field.annotation for field in model.model_fields.values())
    return any(get_origin(each) is Literal and tag in get_args(each) for each in annotations)
