"""The engine's one door to other programs: short questions to the operating system, nothing else."""

import subprocess


def answer(*argv: str, timeout: float = 5.0) -> str | None:
    """Return what ``argv`` prints, stripped; None if it is absent, fails or exceeds ``timeout`` s."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
