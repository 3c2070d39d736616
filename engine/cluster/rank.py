"""The program of one rank, which ``mlx.launch`` starts: ``python -m engine.cluster.rank SUPERVISOR``."""

import base64
import json
import os
import signal
import socket
import sys
from typing import Any

from bridge.common import environment
from bridge.common.errors import KakeyaError
from engine.cluster.messages import send
from engine.cluster.watch import Watch

END_OF_JOB = b"."
_LINE = 1000  # terminals cut longer lines
# MLX tries to connect for 31 s, and no thread of Python runs meanwhile.
_CONNECT_S = 60


def encode(job: dict[str, Any]) -> bytes:
    """Return a job as the lines that ``main`` reads."""
    text = base64.b64encode(json.dumps(job).encode())
    lines = [text[at : at + _LINE] for at in range(0, len(text), _LINE)]
    return b"\n".join([*lines, END_OF_JOB, b""])


def _decode() -> dict[str, Any]:
    data = b""
    while b"\n" + END_OF_JOB + b"\n" not in data:
        piece = os.read(0, 1 << 16)
        if not piece:
            sys.exit("the supervisor ended before it sent a job")
        data += piece.replace(b"\r", b"")
    job: dict[str, Any] = json.loads(base64.b64decode(data.partition(b"\n" + END_OF_JOB)[0]))
    return job


def connect(watch: Watch, backend: str) -> Any:
    """Return the group of all ranks."""
    watch.enter("import")
    from engine.mx import mx

    watch.enter("connect")
    signal.alarm(_CONNECT_S)  # its default action ends the process, also while MLX waits
    group = mx.distributed.init(strict=True, backend=backend)
    signal.alarm(0)
    return group


def main() -> None:
    """Run one job, and report each phase of it."""
    rank = int(environment.get("MLX_RANK") or 0)
    watch = Watch(rank, int(sys.argv[1]))
    send("hello", rank=rank, pid=os.getpid(), host=socket.gethostname(), python=sys.version.split()[0])
    watch.start()
    code = 1
    try:
        job = _decode()
        watch.hear()
        from engine.cluster import work

        group = connect(watch, job["backend"])
        result = work.JOBS[job["task"]](job, group, watch)
        watch.enter("end", watch.count)
        send("end", rank=rank, **result)
        code = 0
    except KakeyaError as error:
        send("failed", rank=rank, message=error.message, fix=error.fix, expected=True)
    except Exception as error:  # noqa: BLE001 - the supervisor shows it
        message = f"{type(error).__name__}: {' '.join(str(error).split())}"
        send("failed", rank=rank, message=message[:2000], fix="", expected=False)
    # Communication of a later token may be under way, whose threads would end the process by an error.
    os._exit(code)


if __name__ == "__main__":
    main()
