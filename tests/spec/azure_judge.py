"""Run by a Python that has azure-ai-ml: what its own ``load_job`` says of each file in a folder.

Prints ``{name: {"error": sentence} or {"job": what was read}}``.
"""

import json
import logging
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

from azure.ai.ml import load_job  # noqa: E402 - it warns when it is imported

said = {}
for path in Path(sys.argv[1]).glob("*.yml"):
    try:
        said[path.stem] = {"job": load_job(path)._to_dict()}
    except Exception as error:
        said[path.stem] = {"error": f"{type(error).__name__}: {error}"}
json.dump(said, sys.stdout, default=str)
