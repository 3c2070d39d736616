"""The buses of a clone: the one remote that serves as the bus, or the several that its settings list.

Git's setting ``kakeya.bus`` lists them, one a value, as ``REMOTE`` or ``LABEL=REMOTE``; a remote is a name or a URL. A
bus that does not answer does not stop the others. With fewer than two buses, nobody else is asked and nothing is added
to what is shown.
"""

from bridge.buses.asking import Answer, Bus, silent, silent_error
from bridge.buses.buses import Buses, read_values

__all__ = ["Answer", "Bus", "Buses", "read_values", "silent", "silent_error"]
