"""What to show of a file that a job left. Nothing in it runs, whatever it claims to be."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from itertools import zip_longest
from typing import Any

from allranks.api import routes
from allranks.ui.api import Session
from allranks.ui.markdown import LONGEST

# Bytes of a preview, of a notebook, rows of a table, and bytes of the two ends of a Parquet file.
_PREVIEW, _NOTEBOOK, _ROWS = 256 << 10, 16 << 20, 200
_HEAD, _FOOT = 8 << 20, 1 << 20
# Seconds for reading a Parquet file.
_PATIENCE = 20.0
IMAGES = {"png": "png", "jpg": "jpeg", "jpeg": "jpeg", "gif": "gif", "webp": "webp"}
AUDIO = {"wav": "wav", "mp3": "mpeg", "ogg": "ogg", "flac": "flac", "m4a": "mp4"}
_TABLES = {"csv": ",", "tsv": "\t"}
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def ending(path: str) -> str:
    return path.rpartition(".")[2].lower()


async def preview(session: Session, job: str, path: str, size: int) -> dict[str, Any]:
    """By ``kind``: image, audio, page, table, notebook, markdown, text, binary."""
    end = ending(path)
    if end in IMAGES or end == "svg":
        return {"kind": "image", "size": size}
    if end in AUDIO:
        return {"kind": "audio", "size": size}
    if end == "html":
        return {"kind": "page", "size": size}
    if size == 0:
        return {"kind": "text", "text": "", "size": 0, "cut": False}
    if end == "parquet":
        return {"size": size, **await _parquet(session, job, path, size)}
    most = _NOTEBOOK if end == "ipynb" else _PREVIEW
    data = await _bytes(session, job, path, 0, most)
    cut = size > len(data)
    if b"\0" in data[:4096]:
        return {"kind": "binary", "size": size}
    text = data.decode(errors="replace")
    return {"size": size, "cut": cut, **of_text(end, text, cut)}


def of_text(end: str, text: str, cut: bool) -> dict[str, Any]:
    if end in ("md", "markdown"):
        return {"kind": "markdown", "text": text}
    if end in _TABLES:
        rows = csv.reader(io.StringIO(text), delimiter=_TABLES[end])
        with contextlib.suppress(csv.Error):
            table = [row for row, _ in zip(rows, range(_ROWS + 1), strict=False)]
            return {**_table(table), "cut": cut or len(table) > _ROWS}
    if end in ("json", "ipynb") and not cut:
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(text)
            if end == "ipynb" and isinstance(value, dict) and isinstance(value.get("cells"), list):
                return {"kind": "notebook", "cells": [*_cells(value["cells"])]}
            text = json.dumps(value, indent=2, ensure_ascii=False)
    return {"kind": "text", "text": text[:_PREVIEW], "cut": cut or len(text) > _PREVIEW}


def _cells(cells: list[Any]) -> Iterator[dict[str, Any]]:
    """Cells with their source, and outputs as text or image. What is more than one text's share
    of Markdown is shown as it was written: reading it would hold up all pages."""
    left = LONGEST
    for cell in cells:
        if not isinstance(cell, dict):
            continue
        outputs, source = cell.get("outputs"), _joined(cell.get("source"))
        is_markdown = cell.get("cell_type") == "markdown" and len(source) <= left
        left -= len(source) if is_markdown else 0
        yield {
            "kind": "markdown" if is_markdown else "code",
            "source": source,
            "outputs": [*_outputs(outputs if isinstance(outputs, list) else [])],
        }


def _outputs(outputs: list[Any]) -> Iterator[tuple[str, str]]:
    for output in outputs:
        if not isinstance(output, dict):
            continue
        data = output["data"] if isinstance(output.get("data"), Mapping) else {}
        image = next((kind for kind in ("png", "jpeg") if f"image/{kind}" in data), None)
        if image is not None:
            content = "".join(_joined(data[f"image/{image}"]).split())
            if _BASE64.fullmatch(content):
                yield "image", f"data:image/{image};base64,{content}"
        elif output.get("output_type") == "error":
            lines = output.get("traceback")
            text = "\n".join(map(str, lines)) if isinstance(lines, list) else ""
            yield "error", re.sub(r"\x1b\[[0-9;]*m", "", text)
        elif text := _joined(data.get("text/plain") or output.get("text")):
            yield "text", text[:_PREVIEW]


def _joined(source: Any) -> str:
    return "".join(map(str, source)) if isinstance(source, list) else str(source or "")


async def _parquet(session: Session, job: str, path: str, size: int) -> dict[str, Any]:
    """Its columns and first rows, from its two ends."""
    if find_spec("pyarrow") is None:
        return {"kind": "binary", "why": "Rows are shown where pyarrow is installed."}
    head = await _bytes(session, job, path, 0, min(size, _HEAD))
    foot = max(0, size - _FOOT)
    tail = await _bytes(session, job, path, foot, _FOOT)
    with tempfile.NamedTemporaryFile(prefix="allranks-", suffix=".parquet") as file:
        file.write(head)
        file.seek(foot)
        file.write(tail)
        file.truncate(size)
        file.flush()
        words = ("-m", "allranks.ui.parquet_head", file.name, str(_ROWS))
        quiet = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, stdin=quiet, stdout=asyncio.subprocess.PIPE, stderr=quiet
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(), _PATIENCE)
            read = json.loads(out)
        except (ValueError, RecursionError, TimeoutError):
            return {"kind": "binary", "why": "It cannot be read as Parquet."}
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    rows = read["rows"]
    return {**_table(rows), "cut": read["count"] >= len(rows)}


def _table(rows: list[list[str]]) -> dict[str, Any]:
    """``numbers``: the columns below whose header there is nothing else."""
    columns = [*zip_longest(*rows[1:], fillvalue="")]
    numbers = [
        at for at, column in enumerate(columns) if any(column) and all(map(_is_number, column))
    ]
    return {"kind": "table", "rows": rows, "numbers": numbers}


def _is_number(cell: str) -> bool:
    try:
        float(cell or 0)
    except ValueError:
        return False
    return True


async def _bytes(session: Session, job: str, path: str, start: int, size: int) -> bytes:
    span = f"bytes={start}-{start + size - 1}"
    async with session.stream(routes.job_file, job, path, span=span) as answer:
        return bytes(await answer.aread())
