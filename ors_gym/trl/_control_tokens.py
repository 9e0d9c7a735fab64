"""Control tokens in what an environment says: a text that reads `<|im_end|>` must stay text, and end nothing."""

import re
from typing import Any


class ControlTokens:
    """The tokens by which a chat template speaks to the model.

    Args:
        processing_class: The trainer's tokenizer or processor; None knows no token.
    """

    def __init__(self, processing_class: Any = None) -> None:
        tokenizer = getattr(processing_class, "tokenizer", processing_class)
        tokens = [] if tokenizer is None else _control_tokens(tokenizer, processing_class)
        self._pattern = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True)))) if tokens else None

    def neutralise(self, text: str) -> str:
        """The text, with a space after the first character of each control token: it reads the same, and is text."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)


def _control_tokens(tokenizer: Any, processing_class: Any) -> list[str]:
    """The special tokens, and the added ones that the template writes, such as `<tool_call>`."""
    template = getattr(processing_class, "chat_template", None) or getattr(tokenizer, "chat_template", None) or ""
    written = "\n".join(template.values()) if isinstance(template, dict) else template
    added = tokenizer.added_tokens_decoder.values()
    tokens = [token.content for token in added if token.special or token.content in written]
    return [token for token in {*tokens, *tokenizer.all_special_tokens} if len(token.strip()) > 1]
