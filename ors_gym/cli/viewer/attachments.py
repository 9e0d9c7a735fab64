"""The files beside a page: texts and images that the page shows cut or smaller, whole. And the thumbnails."""

import hashlib
import io
import warnings
from pathlib import Path
from typing import NamedTuple

from ors_gym.records import IMAGES_FOLDER

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": ("image/png", ".png"),
    b"\xff\xd8\xff": ("image/jpeg", ".jpg"),
    b"GIF8": ("image/gif", ".gif"),
}
_SIDES = (640, 480, 320, 224, 128, 64)
_PIXELS = 4_000_000
"""A small file of more pixels than this is drawn as a thumbnail: a browser would unpack it whole."""

_THUMBNAILS = 500
"""Thumbnails that are held, for images that come again."""


class Attachments:
    """A folder beside a page; each content is one file, named by its hash. An image that the run's records have is not copied.

    Args:
        page: The page. The folder, made when the first file is written, has its name and `_files`.
    """

    def __init__(self, page: Path) -> None:
        self.folder = page.with_name(f"{page.stem}_files")
        self._recorded = page.parent / IMAGES_FOLDER
        self._thumbnails: dict[tuple[str, int], Thumbnail | None] = {}

    def text(self, text: str) -> str:
        """Keep a text as UTF-8; the mark at its start tells a browser so.

        Returns:
            Its address, relative to the page.
        """
        return self._keep(text.encode("utf-8-sig", "backslashreplace"), ".txt")

    def image(self, data: bytes, limit: int) -> "tuple[Thumbnail | None, str]":
        """An image's thumbnail, and where it is whole. Its name follows from its bytes and never from what a server says: only
        images open as images.

        Args:
            data: The image.
            limit: Bytes of the thumbnail.

        Returns:
            The thumbnail, None if there is none; and the whole image's address, "" where the thumbnail is all of it.
        """
        digest = hashlib.sha256(data).hexdigest()
        key = (digest, limit)
        if key not in self._thumbnails:
            if len(self._thumbnails) >= _THUMBNAILS:
                self._thumbnails.clear()
            self._thumbnails[key] = thumbnail(data, limit)
        small = self._thumbnails[key]
        if small is not None and small.data == data:
            return small, ""
        _, suffix = image_type(data)
        recorded = self._recorded / f"{digest}{suffix}"
        return small, f"{IMAGES_FOLDER}/{recorded.name}" if recorded.is_file() else self._keep(data, suffix)

    def _keep(self, data: bytes, suffix: str) -> str:
        path = self.folder / f"{hashlib.sha256(data).hexdigest()[:24]}{suffix}"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return f"{self.folder.name}/{path.name}"


def image_type(data: bytes) -> tuple[str, str]:
    """The MIME type and file suffix that an image's first bytes tell; `("", ".bin")` if it is none that browsers draw."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp", ".webp"
    return next((kind for signature, kind in _SIGNATURES.items() if data.startswith(signature)), ("", ".bin"))


class Thumbnail(NamedTuple):
    """An image as a page draws it; `width` and `height` are the original's, 0 where they are not known."""

    mime_type: str
    data: bytes
    width: int
    height: int


def thumbnail(data: bytes, limit: int) -> Thumbnail | None:
    """The image in at most `limit` bytes: itself if it is small enough, else scaled down.

    Scaling takes Pillow (the extra `images`). Without it, an image over the limit has no thumbnail.

    Returns:
        The thumbnail; None for what is no image, or cannot be made small enough.
    """
    mime_type, _ = image_type(data)
    if not mime_type or limit <= 0:
        return None
    try:
        from PIL import Image
    except ImportError:
        return Thumbnail(mime_type, data, 0, 0) if len(data) <= limit else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=("PNG", "JPEG", "GIF", "WEBP")) as image:
                width, height = image.size
                if len(data) <= limit and width * height <= _PIXELS:
                    return Thumbnail(mime_type, data, width, height)
                picture = image.convert("RGBA" if image.has_transparency_data else "RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, Image.DecompressionBombWarning):
        return None  # broken, or a bomb: the page names it and links to it
    for side in _SIDES:
        picture.thumbnail((side, side))
        packed = io.BytesIO()
        picture.save(packed, "WEBP", quality=80)
        if packed.tell() <= limit:
            return Thumbnail("image/webp", packed.getvalue(), width, height)
    return None
