"""What keeps other sites' pages and a job's texts from doing anything here."""

from __future__ import annotations

from starlette.datastructures import Headers

from allranks.errors import Forbidden

# Scripts and styles come from this page's own files only. A job's text cannot bring any.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "media-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
# For files that jobs have written: nothing in them runs, and they cannot reach this page.
SANDBOX = (
    "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'self'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def is_own_step(headers: Headers) -> bool:
    """Whether the browser says that its user typed or opened the address, or comes from this page.
    Browsers say nothing to an `http` address of another machine."""
    return headers.get("sec-fetch-site") in ("same-origin", "none")


def check_origin(method: str, headers: Headers) -> None:
    """Raise Forbidden for requests from other sites, except for following a link.

    The server has checked Host and Origin before: see `server.http.host_header_check`.
    """
    site = headers.get("sec-fetch-site", "none")
    if site in ("same-origin", "none"):
        return
    follows = headers.get("sec-fetch-mode") == "navigate"
    shown = headers.get("sec-fetch-dest") == "document"
    if method != "GET" or not follows or not shown:
        raise Forbidden("another site's page may not call this one", hint="open the page itself")
