"""The first rows of a Parquet file, `python -m allranks.ui.parquet_head FILE ROWS`, as JSON.

A process of its own, with little memory and time: the file may be anything. It may have only its
beginning and its end; the rest are holes.
"""

from __future__ import annotations

import json
import resource
import sys

# Bytes of memory, and seconds of a processor.
_MEMORY, _SECONDS = 2 << 30, 10
_CELL = 200


def main() -> None:
    path, rows = sys.argv[1], int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    import pyarrow.parquet as parquet  # lazy: it may not be installed

    file = parquet.ParquetFile(path)
    names = [f"{field.name} ({field.type})" for field in file.schema_arrow]
    shown = [[name[:_CELL] for name in names]]
    try:
        batch = next(file.iter_batches(batch_size=rows, use_threads=False), None)
        for row in batch.to_pylist() if batch is not None else ():
            shown.append([str(value)[:_CELL] for value in row.values()])
    except Exception:  # its first rows reach into the hole
        pass
    json.dump({"rows": shown, "count": file.metadata.num_rows}, sys.stdout)


if __name__ == "__main__":
    main()
