"""The process whose end ends the server."""

import os

import psutil

from engine.errors import BadInput

OPTION = "--parent-pid"


class Parent:
    """A running process, identified by its id and its start time, because another process may later get the id."""

    def __init__(self, pid: int) -> None:
        """Find the process; BadInput if it has ended, or if its id belongs to a process younger than this one."""
        try:
            self.pid, self._process = pid, psutil.Process(pid)
            # A host program starts before its server. Only the clock could make our own parent look younger.
            is_it = pid == os.getppid() or self._process.create_time() <= psutil.Process().create_time()
        except psutil.Error:
            is_it = False
        if not is_it or self.has_ended:
            message = f"{OPTION} {pid}: there is no such process, or it is younger than the server"
            raise BadInput(message, "give the id of the process that the server has to end with")

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended. One that nobody has waited for counts as ended too."""
        try:
            return not self._process.is_running() or self._process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True
        except psutil.Error:  # it runs, but may not be looked at
            return False
