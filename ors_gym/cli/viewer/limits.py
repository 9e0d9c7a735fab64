"""How much of a run a page holds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What one page shows of each thing; what is cut stands whole in a file beside the page.

    Args:
        text: Bytes of a text or of a JSON value.
        image: Bytes of an image's thumbnail; 0 draws none.
        items: Steps of an episode, blocks of a step, tools of a task; the first and the last are kept.
    """

    text: int
    image: int
    items: int

    def __str__(self) -> str:
        images = f"images drawn in at most {self.image // 1000} kB" if self.image else "images only as links"
        items = "" if self.items >= ALL else f", at most {self.items} steps of an episode"
        size = f"{self.text / 1000:g} kB" if self.text >= 1000 else f"{self.text} bytes"
        return f"Each text is cut at {size}, {images}{items}"


ALL = 10**9

LEVELS = (
    Limits(text=20_000, image=64_000, items=ALL),
    Limits(text=10_000, image=32_000, items=400),
    Limits(text=5_000, image=16_000, items=200),
    Limits(text=2_500, image=8_000, items=100),
    Limits(text=1_200, image=4_000, items=60),
    Limits(text=600, image=2_000, items=40),
    Limits(text=300, image=0, items=20),
    Limits(text=80, image=0, items=6),
)
"""From the one that is wanted to the one that always fits: a page takes the first that keeps it within its budget."""


def budget(num_episodes: int) -> int:
    """The bytes that a page of so many episodes may have: 100 MB for up to 10,000 of them, then 10 kB for each."""
    return max(100_000_000, 10_000 * num_episodes)
