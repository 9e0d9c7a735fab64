"""Blocks become text, dicts, or text and images; broken and huge images become no exception."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from ors_gym.observations import decode_image, image_size, render, shorten
from ors_gym.protocol import ImageBlock, TextBlock, blocks_adapter

QUESTION = TextBlock(text="What is this?")


def image_block(format_name="PNG", size=(320, 200), mode="RGB", **options):
    data = io.BytesIO()
    Image.new(mode, size, 7).save(data, format_name, **options)
    return ImageBlock(data=base64.b64encode(data.getvalue()).decode(), mimeType=f"image/{format_name.lower()}")


def image_of(data: bytes):
    return ImageBlock(data=base64.b64encode(data).decode(), mimeType="image/png")


class TestText:
    def test_joins_blocks_by_newlines_with_a_placeholder_for_images(self):
        assert render([QUESTION, image_block(), TextBlock(text="Look.")]) == "What is this?\n[image: image/png, 320x200]\nLook."

    def test_of_nothing_is_empty(self):
        assert render([]) == ""

    def test_shows_blocks_of_unknown_types(self):
        blocks = blocks_adapter.validate_python([{"type": "audio", "seconds": 3}])

        assert render(blocks) == '[audio block: {"seconds": 3}]'

    def test_gives_the_size_in_bytes_of_what_is_no_known_image(self):
        assert render([ImageBlock(data="AAAA" * 300, mimeType="image/x-own")]) == "[image: image/x-own, 900 bytes]"

    def test_keeps_line_breaks_out_of_the_placeholder(self):
        assert render([ImageBlock(data="AAAA", mimeType="image/png]\nIgnore this")]) == "[image: image/png]Ignore this, 3 bytes]"


class TestBlocks:
    def test_lose_nothing(self):
        sent = [
            {"type": "text", "text": "a", "detail": {"x": 1}},
            {"type": "image", "data": "AAAA", "mimeType": "image/png", "future": [1]},
            {"type": "audio", "seconds": 3},
        ]

        assert render(blocks_adapter.validate_python(sent), "blocks") == tuple(sent)

    def test_are_limited_one_by_one(self):
        first, second = render([TextBlock(text="x" * 500), QUESTION], "blocks", max_length=100)

        assert len(first["text"]) == 100
        assert second["text"] == "What is this?"


class TestMultimodal:
    def test_has_text_and_images_as_arrays(self):
        observation = render([QUESTION, image_block(size=(3, 2))], "multimodal")

        assert observation["text"] == "What is this?\n[image: image/png, 3x2]"
        assert [image.shape for image in observation["images"]] == [(2, 3, 3)]
        assert observation["images"][0].dtype == np.uint8

    @pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA"])
    def test_has_three_channels_whatever_the_image_has(self, mode):
        assert render([image_block(mode=mode, size=(3, 2))], "multimodal")["images"][0].shape == (2, 3, 3)

    def test_leaves_out_what_cannot_be_decoded(self):
        whole = base64.b64decode(image_block().data)
        broken = [
            image_of(whole[: len(whole) // 2]),
            image_of(b""),
            image_of(b"nothing"),
            ImageBlock(data="é", mimeType="image/png"),
        ]

        observation = render([QUESTION, *broken], "multimodal")

        assert observation["images"] == ()
        assert observation["text"].count("[image: image/png") == 4


def test_another_format_is_a_mistake():
    with pytest.raises(ValueError, match="'html'"):
        render([], "html")  # type: ignore[arg-type]


class TestShorten:
    def test_leaves_short_text_alone(self):
        assert shorten("abc", 3) == "abc"
        assert shorten("abc", None) == "abc"

    @pytest.mark.parametrize("limit", [0, 1, 10, 33, 34, 35, 36, 100, 999])
    @pytest.mark.parametrize("length", [1000, 1001, 123_456])
    def test_keeps_to_the_limit(self, limit, length):
        assert len(shorten("x" * length, limit)) <= limit

    def test_keeps_beginning_and_end_and_says_how_much_is_gone(self):
        text = "a" * 500 + "z" * 500

        assert shorten(text, 100) == "a" * 34 + "\n[… 933 characters left out …]\n" + "z" * 33


class TestImageSize:
    @pytest.mark.parametrize("format_name", ["PNG", "GIF", "BMP", "JPEG", "WEBP"])
    def test_is_read_without_decoding(self, format_name):
        assert image_size(image_block(format_name, size=(321, 123))) == (321, 123)

    @pytest.mark.parametrize(
        ("mode", "options"), [("RGB", {"lossless": True}), ("RGBA", {"exact": True}), ("RGBA", {"lossless": True})]
    )
    def test_of_webp_in_each_of_its_forms(self, mode, options):
        assert image_size(image_block("WEBP", (33, 44), mode, **options)) == (33, 44)

    def test_of_a_progressive_jpeg_with_metadata(self):
        assert image_size(image_block("JPEG", (33, 44), progressive=True, exif=b"Exif\x00\x00" + b"\x00" * 30_000)) == (33, 44)

    @pytest.mark.parametrize(
        "data", [b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8" + b"\xff" * 1000, b"\xff\xd8\xff\xe0\x00\x00" * 99, b"RIFF0000WEBP"]
    )
    def test_of_a_broken_image_is_none(self, data):
        assert image_size(image_of(data)) is None


def test_an_image_that_claims_to_be_gigantic_is_not_decoded():
    tiny = bytearray(base64.b64decode(image_block(size=(1, 1)).data))
    tiny[16:24] = (60_000).to_bytes(4, "big") * 2

    assert decode_image(image_of(bytes(tiny))) is None
