"""The public name of the gate: see ``bridge.gate``."""

from bridge.bus.wire import Violation
from bridge.gate import check_report

__all__ = ["Violation", "check_report"]
