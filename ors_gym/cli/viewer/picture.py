"""A picture of a page, by a browser on this machine."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ors_gym.errors import ORSError

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
_FLAGS = (
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)

_PATIENCE = 60.0
"""Seconds for a picture."""


def find_browser() -> str | None:
    """The path of Chromium or a browser of its family; the environment variable `CHROMIUM` overrides. None if there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _BROWSERS)), None)


def browser_flags() -> list[str]:
    """A browser without a window or a network of its own; without a sandbox only for root, to whom Chromium gives none."""
    return [*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]


def take_picture(page: Path, png: Path, *, size: tuple[int, int] = (1280, 800), address: str = "", dark: bool = False) -> Path:
    """Draw a page as a PNG.

    Args:
        page: The HTML file.
        png: The picture; replaced if it exists.
        size: Width and height of the window, in pixels.
        address: What the page shows: `#/` the tables, `#/episode/3`, `#/group/2`.
        dark: The dark colours.

    Returns:
        The picture's path.

    Raises:
        ORSError: There is no browser, or it drew nothing.
    """
    browser = find_browser()
    if browser is None:
        raise ORSError(
            "a picture takes Chromium, and none was found: install it (Debian: apt-get install chromium) or set CHROMIUM"
        )
    png.unlink(missing_ok=True)
    png.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ors-gym-", ignore_cleanup_errors=True) as profile:
        command = [
            browser,
            *browser_flags(),
            f"--user-data-dir={profile}",
            f"--window-size={size[0]},{size[1]}",
            "--virtual-time-budget=10000",
            *(["--blink-settings=preferredColorScheme=0"] if dark else []),
            f"--screenshot={png.resolve()}",
            f"{page.resolve().as_uri()}{address}",
        ]
        try:
            result = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_PATIENCE, check=False)
        except subprocess.TimeoutExpired as error:
            raise ORSError(f"{browser} drew nothing within {_PATIENCE:.0f} s") from error
        except OSError as error:
            raise ORSError(f"the browser {browser} cannot be started: {error.strerror}") from error
    if not png.is_file():
        raise ORSError(f"{browser} drew nothing; it ended with {result.returncode}: {result.stderr.strip()[-500:]}")
    return png
