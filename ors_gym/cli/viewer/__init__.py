"""The viewer: a run's episodes as one self-contained HTML file, and a picture of it."""

from ors_gym.cli.viewer.page import Page, write_page
from ors_gym.cli.viewer.picture import browser_flags, find_browser, take_picture

__all__ = ["Page", "browser_flags", "find_browser", "take_picture", "write_page"]
