import numpy as np
import pytest

from ors_gym.observations import render
from ors_gym.protocol import ImageBlock, TextBlock
from ors_gym.wrappers.encoders import ByteEncoder, FunctionEncoder, HashEncoder, ImageEncoder
from tests.servers.environments import PNG

BLOCKS = [TextBlock(text="one"), ImageBlock(data=PNG, mimeType="image/png"), TextBlock(text="two")]


def test_blocks_and_multimodal_observations_are_read_as_text() -> None:
    encoder = ByteEncoder(8)

    assert encoder([render(BLOCKS, "blocks")])[0].tobytes() == b"one\ntwo\0"
    assert encoder([render(BLOCKS, "multimodal")])[0].tobytes() == b"one\n[ima"
    assert encoder(["one"])[0].tobytes() == b"one\0\0\0\0\0"


def test_bytes_are_cut_at_the_length_and_padded_with_zeros() -> None:
    rows = ByteEncoder(3)(["é!", "", "abcdef", "\ud800"])

    assert rows.dtype == np.uint8
    assert rows.tolist() == [[0xC3, 0xA9, ord("!")], [0, 0, 0], [97, 98, 99], [ord("?"), 0, 0]]


def test_a_batch_is_hashed_row_by_row() -> None:
    encoder = HashEncoder(32, (1, 2), "word")

    rows = encoder(["left", "right"])

    assert rows.shape == (2, 32)
    assert np.array_equal(rows[1], encoder(["right"])[0])
    assert all(encoder.space.contains(row) for row in rows)


def test_a_function_of_ones_own_gets_all_texts_at_once() -> None:
    batches: list[list[str]] = []

    def encode(texts: list[str]) -> list[list[float]]:
        batches.append(texts)
        return [[len(text), text.count("a")] for text in texts]

    encoder = FunctionEncoder(encode)
    rows = encoder(["a banana", "kiwi"])

    assert encoder.space.shape == (2,)
    assert rows.tolist() == [[8.0, 4.0], [4.0, 0.0]]
    assert batches == [[""], ["a banana", "kiwi"]]


def test_a_function_that_returns_no_row_for_each_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(n, …\).*shape \(3,\)"):
        FunctionEncoder(lambda texts: [1.0, 2.0, 3.0])


def test_the_last_image_is_resized_and_absent_ones_are_black() -> None:
    encoder = ImageEncoder((2, 5))

    rows = encoder([render(BLOCKS, "multimodal"), render(BLOCKS, "blocks"), render(BLOCKS[:1], "blocks")])

    assert rows.shape == (3, 2, 5, 3)
    assert rows[0].tolist() == rows[1].tolist() == [[[255, 0, 0]] * 5] * 2
    assert not rows[2].any()


def test_an_image_that_is_none_is_black() -> None:
    broken = render([ImageBlock(data="bm9wZQ==", mimeType="image/png")], "blocks")

    assert not ImageEncoder((2, 2))([broken]).any()


def test_images_cannot_be_had_from_text() -> None:
    with pytest.raises(TypeError, match='observation_format="multimodal"'):
        ImageEncoder((2, 2))(["[image: image/png, 4x3]"])


@pytest.mark.parametrize("make", [lambda: ByteEncoder(0), lambda: ImageEncoder((0, 5))])
def test_empty_arrays_are_refused(make: object) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        make()  # type: ignore[operator]
