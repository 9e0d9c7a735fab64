"""What the trainer is like: known once it is made, read by what runs inside it."""

from dataclasses import dataclass, field
from typing import Any

from ors_gym.trl._control_tokens import ControlTokens


@dataclass
class TrainerFacts:
    """What `spec.callbacks` learn of the trainer. Pickled, it has no `overflow`, which only the trainer's own loop cuts off.

    Attributes:
        sees_images: Whether its processing class takes images.
        group_size: The most rollouts of a task in a step (`num_generations`); None while it is not known.
        overflow: A text that is longer than any completion may be, in tokens; "" while there is none.
        control_tokens: Those of its chat template.
    """

    sees_images: bool = False
    group_size: int | None = None
    overflow: str = ""
    control_tokens: ControlTokens = field(default_factory=ControlTokens)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "overflow": ""}

    def learn(self, args: Any, processing_class: Any) -> None:
        """Takes in the trainer's arguments and its tokenizer or processor."""
        self.sees_images = hasattr(processing_class, "image_processor")
        sizes = [getattr(args, name, None) for name in ("num_generations", "num_generations_eval")]
        self.group_size = max((size for size in sizes if size), default=None)
        self.control_tokens = ControlTokens(processing_class)
        tokenizer = getattr(processing_class, "tokenizer", processing_class)
        self.overflow = _longer_than(getattr(args, "max_completion_length", None), tokenizer)


def _longer_than(max_tokens: int | None, tokenizer: Any) -> str:
    """A text of more than `max_tokens` tokens; "" where none is found, so that nothing ever relies on a guess."""
    for unit in (" over", " 0"):
        text = unit * ((max_tokens or 0) + 1)
        if (
            max_tokens is not None
            and tokenizer is not None
            and len(tokenizer(text, add_special_tokens=False)["input_ids"]) > max_tokens
        ):
            return text
    return ""
