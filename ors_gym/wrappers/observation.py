"""Wrappers that turn what an environment says into the arrays that value networks read."""

from collections.abc import Callable
from typing import Any, Literal

import gymnasium as gym
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import ArrayLike, NDArray

from ors_gym.wrappers import vector
from ors_gym.wrappers._forms import ForBoth
from ors_gym.wrappers.encoders import ByteEncoder, Encoder, FunctionEncoder, HashEncoder, ImageEncoder


class EncodedObservation(gym.ObservationWrapper[NDArray[Any], Any, Any], RecordConstructorArgs, metaclass=ForBoth):
    """Observations through an `Encoder`. The parent of the wrappers here; arguments are recorded by them.

    Args:
        env: The environment to wrap.
        encoder: What turns observations into rows of an array.
    """

    def __init__(self, env: gym.Env[Any, Any], encoder: Encoder) -> None:
        gym.ObservationWrapper.__init__(self, env)
        self._encoder = encoder
        self.observation_space = encoder.space

    def observation(self, observation: Any) -> NDArray[Any]:
        """The observation as an array of the observation space's shape."""
        row: NDArray[Any] = self._encoder([observation])[0]
        return row


class HashedText(EncodedObservation):
    """Text as a float32 vector: signed feature hashing of its n-grams, of length one (see `ors_gym.wrappers.hashing`).

    What value networks of a few layers learn from best without a language model. It sees only the last observation: put
    `gymnasium.wrappers.FrameStackObservation` around it where a task needs the prompt as well as what came after.

    Args:
        env: An environment or a vector environment, with any `observation_format`.
        n_features: The vector's length. More means fewer n-grams on one place.
        ngrams: The shortest and the longest n-gram.
        analyzer: `"word"`, or `"char"` where the answer is in single characters.

    >>> from ors_gym.wrappers.hashing import TextHasher
    >>> (TextHasher(256)("the door is red") @ TextHasher(256)("the door is blue")).round(2) > 0.3
    np.True_
    """

    vector_form = vector.HashedText

    def __init__(
        self,
        env: gym.Env[Any, Any],
        n_features: int = 256,
        ngrams: tuple[int, int] = (1, 3),
        analyzer: Literal["word", "char"] = "word",
    ) -> None:
        RecordConstructorArgs.__init__(self, n_features=n_features, ngrams=ngrams, analyzer=analyzer)
        super().__init__(env, HashEncoder(n_features, ngrams, analyzer))


class TextBytes(EncodedObservation):
    """Text as its first UTF-8 bytes: a uint8 vector, zeros after the text's end.

    Nothing of the text is lost up to that length, which suits networks that embed each byte. A plain multi-layer perceptron learns
    next to nothing from it: take `HashedText` there.

    Args:
        env: An environment or a vector environment, with any `observation_format`.
        max_length: The vector's length, in bytes; what is beyond is cut off.

    >>> from ors_gym.env import ORSEnv
    >>> env = TextBytes(ORSEnv(base_url, "largest_digit"), max_length=6)
    >>> digits, info = env.reset()
    >>> digits.shape, chr(digits[3])
    ((6,), '=')
    >>> env.close()
    """

    vector_form = vector.TextBytes

    def __init__(self, env: gym.Env[Any, Any], max_length: int = 1024) -> None:
        RecordConstructorArgs.__init__(self, max_length=max_length)
        super().__init__(env, ByteEncoder(max_length))


class ImageObservation(EncodedObservation):
    """The last image of an observation, resized, as uint8 of shape `(height, width, 3)`; black where there is none.

    Args:
        env: An environment or a vector environment, with `observation_format` `"multimodal"` or `"blocks"`. Needs the extra
            `images`.
        size: Height and width in pixels.

    >>> from ors_gym.env import ORSEnv
    >>> env = ImageObservation(ORSEnv(base_url, "largest_digit", observation_format="blocks"))
    >>> image, info = env.reset()
    >>> image.shape, image.any()  # there is no image
    ((84, 84, 3), np.False_)
    >>> env.close()
    """

    vector_form = vector.ImageObservation

    def __init__(self, env: gym.Env[Any, Any], size: tuple[int, int] = (84, 84)) -> None:
        RecordConstructorArgs.__init__(self, size=size)
        super().__init__(env, ImageEncoder(size))


class EmbeddedText(EncodedObservation):
    """Text through a function of one's own, such as a sentence encoder, as float32.

    Args:
        env: An environment or a vector environment, with any `observation_format`.
        encode: Takes a list of n texts, returns an array of shape `(n, …)`. A vector environment calls it once a step, with the
            texts of all. It is called once with an empty text to learn the shape.

    Raises:
        ValueError: `encode` does not return one row a text.

    >>> from ors_gym.env import ORSEnv
    >>> env = EmbeddedText(ORSEnv(base_url, "largest_digit"), lambda texts: [[len(text), text.count("9")] for text in texts])
    >>> length, nines = env.reset()[0]
    >>> length
    np.float32(4.0)
    >>> env.close()
    """

    vector_form = vector.EmbeddedText

    def __init__(self, env: gym.Env[Any, Any], encode: Callable[[list[str]], ArrayLike]) -> None:
        RecordConstructorArgs.__init__(self, _disable_deepcopy=True, encode=encode)
        super().__init__(env, FunctionEncoder(encode))
