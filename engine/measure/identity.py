"""Who measured: the machine, its software and the code, as every report names them."""

import platform
from pathlib import Path

from bridge.common import host
from engine import blas_speed
from engine.measure import provenance


def identity() -> dict[str, object]:
    """Return the ``identity`` section of a report. Imports MLX, for the device and the BLAS in use."""
    from engine.mx import mx

    blas = blas_speed.in_use()

    return {
        "host": platform.node(),
        "os": f"{host.system()} ({platform.system()} {platform.release()} {platform.machine()})",
        "chip": host.chip(),
        "cores": host.cores(),
        "memory_bytes": host.memory_bytes(),
        "device": host.device_name(mx.default_device()),
        "versions": host.versions(),
        "blas": {**blas.as_dict(), "library": Path(blas.library).name},
        "code": provenance.code(),
        "modified": provenance.modified(),
        "load": provenance.load(),
        "power": provenance.power(),
    }
