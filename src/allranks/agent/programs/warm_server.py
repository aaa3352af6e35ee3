"""Import modules once, and fork ranks that find them imported. Run as a file.

    python OPTIONS warm_server.py JSON

JSON has the parameters of ``allranks_warm.server.Server``.
The package ``allranks_warm`` beside it does the work. This file is what Python runs, and so it
lies at the bottom of a rank's stack.
"""

import json
import os
import sys

# What a script finds in a new module of its own.
_NAMES = {name: value for name, value in globals().items() if name.startswith("__")}
_FOLDER = os.path.dirname(os.path.abspath(__file__))

if __name__ == "__main__":
    _own = sys.modules["__main__"]  # kept: its names are used to the end
    if sys.path[:1] != [_FOLDER]:  # Python puts it there, unless an option forbids it
        sys.path.insert(0, _FOLDER)
    from allranks_warm import script as _script  # type: ignore[import-not-found]
    from allranks_warm.server import Server as _Server  # type: ignore[import-not-found]

    del sys.path[0]
    _rank_script = _Server(**json.loads(sys.argv[1])).serve()
    if _rank_script is None:
        os._exit(0)
    try:
        _run = _script.prepare_script(_rank_script, _NAMES)
        if callable(_run):
            _run()
        else:
            exec(_run, sys.modules["__main__"].__dict__)
    except SystemExit:
        raise
    except BaseException:
        _script.hide_frames(_FOLDER)
        raise
