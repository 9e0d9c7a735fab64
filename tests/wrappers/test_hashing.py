import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ors_gym.wrappers.hashing import TextHasher


def test_a_text_has_the_same_vector_in_every_process() -> None:
    program = "from ors_gym.wrappers.hashing import TextHasher; print(TextHasher(16)('The red door, please!').tolist())"

    outputs = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }

    assert outputs == {f"{TextHasher(16)('The red door, please!').tolist()}\n"}


def test_the_vector_of_a_word_is_one_place_with_a_sign() -> None:
    vector = TextHasher(n_features=8, ngrams=(1, 1))("door")

    assert vector.dtype == np.float32
    assert sorted(np.abs(vector).tolist()) == [0, 0, 0, 0, 0, 0, 0, 1]


def test_signs_go_both_ways() -> None:
    words = [f"word{number}" for number in range(100)]

    signs = {float(TextHasher(1, ngrams=(1, 1))(word)[0]) for word in words}

    assert signs == {-1.0, 1.0}


def test_ngrams_keep_the_order_of_words() -> None:
    unigrams, up_to_three = TextHasher(256, ngrams=(1, 1)), TextHasher(256, ngrams=(1, 3))

    assert np.array_equal(unigrams("dog bites man"), unigrams("man bites dog"))
    assert not np.array_equal(up_to_three("dog bites man"), up_to_three("man bites dog"))


def test_words_are_counted_without_regard_to_case_and_marks_are_words() -> None:
    hasher = TextHasher(256)

    assert np.array_equal(hasher("Red  DOOR"), hasher("red door"))
    assert not np.array_equal(hasher("3 + 4"), hasher("3 - 4"))


def test_characters_are_ngrams_too() -> None:
    words, characters = TextHasher(256), TextHasher(256, ngrams=(1, 1), analyzer="char")

    assert words("381=") @ words("138=") < 0.6
    assert characters("381=") @ characters("138=") == pytest.approx(1.0)


def test_a_text_without_ngrams_is_zero() -> None:
    assert TextHasher(4)("").tolist() == [0, 0, 0, 0]


@given(st.text(st.characters(codec=None)), st.integers(1, 64))
def test_any_text_has_a_vector_of_length_one_or_zero(text: str, n_features: int) -> None:
    vector = TextHasher(n_features)(text)

    assert vector.shape == (n_features,)
    assert min(abs(float(np.linalg.norm(vector)) - length) for length in (0.0, 1.0)) < 1e-5


@pytest.mark.parametrize("arguments", [{"n_features": 0}, {"ngrams": (0, 1)}, {"ngrams": (3, 2)}, {"analyzer": "line"}])
def test_arguments_out_of_range_are_refused(arguments: dict) -> None:
    with pytest.raises(ValueError):
        TextHasher(**arguments)
