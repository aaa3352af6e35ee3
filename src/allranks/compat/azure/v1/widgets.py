"""`azureml.widgets` and `azureml.telemetry`."""

from __future__ import annotations

import threading
from typing import Any

from allranks.compat.azure.v1.run import Run
from allranks.errors import UsageError
from allranks.sdk import Client


class RunDetails:
    """Shows a run, in a notebook live below the cell."""

    def __init__(self, run_instance: Run) -> None:
        self._run = run_instance

    def show(self, render_lib: object = None, widget_settings: object = None) -> None:
        """Returns at once; in a notebook what it shows follows the job. Elsewhere one line."""
        job = Client().jobs.get(self._run.id)
        try:
            from IPython import get_ipython  # lazy: notebooks have it
        except ImportError:
            get_ipython = None
        if get_ipython is None or get_ipython() is None:
            print(f"{job.name}: {job.status}, {job.studio_url}")
            return
        threading.Thread(target=_watch, args=(job,), daemon=True).start()


def _watch(job: Any) -> None:
    try:
        job.watch()
    except UsageError as error:
        print(error)


def set_diagnostics_collection(send_diagnostics: bool = False, **_: Any) -> None:
    """Nothing is collected."""
