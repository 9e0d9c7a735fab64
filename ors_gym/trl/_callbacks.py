"""`callbacks`: what the spec learns of the trainer, and what ends with the training."""

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from ors_gym.trl._trainer import TrainerFacts


class ORSCallback(TrainerCallback):  # type: ignore[misc]
    """Learns what the trainer is like, and closes sessions and records when the training ends.

    Args:
        facts: Takes what is learnt.
        on_end: Called at the end of training.
    """

    def __init__(self, facts: TrainerFacts, on_end: Callable[[], None]) -> None:
        self._facts = facts
        self._on_end = on_end

    def on_init_end(self, args: Any, state: Any, control: Any, processing_class: Any = None, **kwargs: Any) -> None:
        """The trainer has been made."""
        self._facts.learn(args, processing_class)

    def on_train_begin(self, args: Any, state: Any, control: Any, processing_class: Any = None, **kwargs: Any) -> None:
        """The training begins."""
        self._facts.learn(args, processing_class)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The training has ended."""
        self._on_end()
