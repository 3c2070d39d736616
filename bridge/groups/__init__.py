"""Sweeps: one request for each point of a preset's parameters, sent, followed and cancelled as one group."""

from bridge.groups.find import find_group
from bridge.groups.group import Group, Point, worst
from bridge.groups.sweep import Ask, choose, quota_note, start

__all__ = ["Ask", "Group", "Point", "choose", "find_group", "quota_note", "start", "worst"]
