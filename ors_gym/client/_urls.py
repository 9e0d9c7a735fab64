"""Names that go into URLs and headers: quoted or refused, never another path, never another header."""

import ipaddress
import re
from functools import lru_cache
from urllib.parse import quote, urlsplit

import httpx

_LONGEST_NAME = 1024
_NOT_IN_A_NAME = re.compile(r"[/\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SESSION_ID = re.compile(r"[\x21-\x7e]{1,512}")


def parse_base_url(base_url: str) -> httpx.URL:
    """A server's base URL, checked; its path ends with a slash.

    Raises:
        ValueError: It is not an http or https URL with a host, or it has a query or fragment.
    """
    try:
        url = httpx.URL(base_url)
        urlsplit(base_url).port  # noqa: B018 - refuses ports and brackets that httpx lets pass
    except (httpx.InvalidURL, ValueError) as error:
        raise ValueError(f"base_url is not a URL: {error}") from None
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        shown = url.copy_with(username=None, password=None) if url.userinfo else url
        raise ValueError(f"base_url must look like https://host[:port][/prefix], without query or fragment, not {str(shown)!r}")
    return url.copy_with(path=url.path.rstrip("/") + "/")


@lru_cache(maxsize=1024)
def quote_segment(env_name: str) -> str:
    """An environment's name as one segment of a path.

    Raises:
        ValueError: It is empty, "." or "..", longer than 1,024 characters, or has a slash, a backslash or a control character.

    >>> quote_segment("gsm8k v2?")
    'gsm8k%20v2%3F'
    """
    if not 0 < len(env_name) <= _LONGEST_NAME or env_name in (".", "..") or _NOT_IN_A_NAME.search(env_name):
        shown = env_name if len(env_name) <= 100 else f"{env_name[:100]}…"
        raise ValueError(
            f"{shown!r} cannot be an environment's name: that is one segment of a path of 1 to {_LONGEST_NAME:,} characters, "
            "neither '.' nor '..', without slash, backslash or control character"
        )
    return quote(env_name, safe="")


def is_session_id(sid: str) -> bool:
    """Whether `sid` can be sent as a header as it is: 1 to 512 visible ASCII characters."""
    return _SESSION_ID.fullmatch(sid) is not None


def is_this_machine(base_url: str) -> bool:
    """Whether a server is on this machine."""
    host = httpx.URL(base_url).host
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
