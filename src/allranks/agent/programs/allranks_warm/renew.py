"""What a fork takes again from the environment, the clock or chance."""

from __future__ import annotations

import os
import sys
import time
from typing import Any


def renew() -> None:
    """Renew what modules took from the environment, the clock or chance as they were imported. The
    module `random` does so by itself in every fork."""
    if "ALLRANKS_IMPORTS" in os.environ:
        import allranks_imports  # type: ignore[import-not-found] # lazy: few jobs need it

        allranks_imports.use_copies()
    if "ALLRANKS_HOLD" in os.environ:
        import allranks_hold  # type: ignore[import-not-found] # lazy: as above

        allranks_hold.install()
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = os.getcwd()
        process.current_process()._config["authkey"] = process.AuthenticationString(os.urandom(32))
    temporary: Any = sys.modules.get("tempfile")
    if temporary is not None:
        temporary.tempdir = None
    logging: Any = sys.modules.get("logging")
    if logging is not None:
        logging._startTime = time.time_ns() if sys.version_info >= (3, 13) else time.time()
    numbers: Any = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()  # those of GPUs are made in the rank
