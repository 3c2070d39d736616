"""The policies that the installed service serves: its file lists them, and they are read and changed only here."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bridge.errors import PolicyError, as_kakeya_error
from runner.policy import Policy
from runner.service.plan import Service, below
from runner.service.settings import policies_in
from runner.service.several import Member, check_states, load_members


@dataclass(frozen=True)
class Served:
    """The policies' files, in the order in which the service names them."""

    files: tuple[Path, ...] = ()

    @classmethod
    def by(cls, service: Service, root: Path | None = None) -> "Served":
        """Return what the installed service serves: nothing if it is not installed."""
        file = below(root, next(iter(service.files)))
        return cls(policies_in(service.argv_in(file.read_bytes())) if file.is_file() else ())

    def named(self, file: Path) -> Path:
        """Return a policy's path as the service names it; if the service does not serve it, the path itself."""
        return next((each for each in self.files if each.resolve() == file.resolve()), file.absolute())

    def plus(self, added: Mapping[Path, Policy], tell: Callable[[str], None]) -> dict[Path, Policy | None]:
        """Return what the service serves once these policies are added. One that cannot be read stays, as None.

        Raises:
            PolicyError: two share a state folder, or no policy can be read.
        """
        own: dict[Path, Policy | None] = {self.named(file): policy for file, policy in added.items()}
        others = self._read([file for file in self.files if file not in own], tell, may_fail=bool(own))
        policies = {file: own.get(file) or others.get(file) for file in (*self.files, *own)}
        policies = {file: policy for file, policy in policies.items() if policy or file in others}
        check_states([Member(file, policy) for file, policy in policies.items()])
        return policies

    def minus(self, removed: Iterable[Path], tell: Callable[[str], None]) -> dict[Path, Policy | None]:
        """Return what the service still serves without these policies."""
        gone = [self.named(file) for file in removed]
        return self._read([file for file in self.files if file not in gone], tell, may_fail=True)

    @staticmethod
    def _read(
        files: Iterable[Path], tell: Callable[[str], None], *, may_fail: bool
    ) -> dict[Path, Policy | None]:
        """Read policies. A missing file is left out, unless its whole folder is missing, as of an unmounted disk."""
        there = [file for file in files if not _is_missing(file)]
        for file in files:
            if file not in there:
                tell(f"{file} does not exist any more: the service leaves it out")
        try:
            return {each.file: each.policy for each in load_members(there, tell)}
        except (PolicyError, OSError) as error:
            if not may_fail:
                raise
            tell(f"{as_kakeya_error(error).message}; the service goes on trying to read it")
            return dict.fromkeys(there)


def _is_missing(file: Path) -> bool:
    try:
        file.stat()
    except FileNotFoundError:
        return file.parent.exists()
    except OSError:
        return False
    return False
