"""Addresses of pages as people type them."""

import asyncio
import base64
from pathlib import Path

import httpx
import pytest

from allranks.ui.app import create_app


@pytest.mark.parametrize(
    ("typed", "page"),
    [
        ("/ui/computes/", "/ui/computes"),
        ("/ui/jobs/?limit=3", "/ui/jobs?limit=3"),
        ("/ui/jobs/j/files//", "/ui/jobs/j/files"),
        ("/ui/nowhere/", "/ui/nowhere"),
    ],
)
def test_a_slash_at_the_end_leads_to_the_page_on_the_same_host(
    tmp_path: Path, typed: str, page: str
) -> None:
    async def location() -> str:
        app = create_app("http://127.0.0.1:1", base64.urlsafe_b64encode(b"k" * 32), tmp_path)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answer = await client.get(typed)
        return answer.headers["location"]

    assert asyncio.run(location()) == page
