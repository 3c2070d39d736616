"""Clones models with some modules replaced: parameters are shared, and the model itself does not change."""

import copy
from collections.abc import Callable
from typing import Any

from engine.mx import nn


def with_replaced(module: Any, replace: Callable[[nn.Module], nn.Module]) -> Any:
    """Return a module, or a list of modules, with some modules replaced; the same object if none is replaced.

    Only what is on the way to a replaced module is copied. ``replace`` leads from a module to the one in its place, or
    to itself. It is called from the inside outwards, with a copy if something within the module was replaced.
    """
    if isinstance(module, list | tuple):
        children = [with_replaced(child, replace) for child in module]
        same = all(new is old for new, old in zip(children, module, strict=True))
        return module if same else type(module)(children)
    if not isinstance(module, nn.Module):
        return module
    changed = {name: with_replaced(child, replace) for name, child in module.items()}
    changed = {name: child for name, child in changed.items() if child is not module[name]}
    if not changed:
        return replace(module)
    clone = copy.copy(module)
    for name, child in changed.items():
        clone[name] = child
    return replace(clone)


def as_kind(module: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """Return a clone of a module that belongs to another class."""
    clone = copy.copy(module)
    clone.__class__ = kind
    return clone
