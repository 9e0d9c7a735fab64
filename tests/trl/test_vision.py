"""A model that sees, built from a configuration, receives the images of prompts and tools in TRL's own loop."""

from pathlib import Path
from typing import Any

import pytest
from transformers import (
    ProcessorMixin,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
    Qwen2VLProcessor,
    set_seed,
)

from ors_gym.trl import ORSSpec
from tests.trl.tiny import CHAT_TEMPLATE, call, logged, make_tokenizer, make_trainer

IMAGE, FINISH = call("image"), call("finish")
VISION_TEMPLATE = CHAT_TEMPLATE.replace(
    "{%- if message.content %}{{ message.content + ' ' }}{% endif %}",
    "{%- if message.content is string %}{{ message.content + ' ' }}{% else %}{% for part in message.content or [] %}"
    "{{ ' <|image_pad|> ' if part.type == 'image' else part.text + ' ' }}{% endfor %}{% endif %}",
)


class ImageProcessor(Qwen2VLProcessor):
    """Qwen2-VL's processor without its part for videos, which needs torchvision."""

    def __init__(self, image_processor: Any, tokenizer: Any, chat_template: str | None = None) -> None:
        self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
        self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
        self.video_token_id = tokenizer.convert_tokens_to_ids(self.video_token)
        ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)


def make_processor() -> ImageProcessor:
    tokenizer = make_tokenizer(calls=[IMAGE, FINISH])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|image_pad|>", "<|video_pad|>"]})
    image_processor = Qwen2VLImageProcessorPil(size={"shortest_edge": 28 * 28, "longest_edge": 28 * 28})
    return ImageProcessor(image_processor, tokenizer, VISION_TEMPLATE)


def make_vision_model(processor: ImageProcessor) -> Qwen2VLForConditionalGeneration:
    set_seed(0)
    tokenizer = processor.tokenizer
    config = Qwen2VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "max_position_embeddings": 512,
            "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": tokenizer.eos_token_id,
            "eos_token_id": tokenizer.eos_token_id,
        },
        vision_config={"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2},
        image_token_id=processor.image_token_id,
        video_token_id=processor.video_token_id,
    )
    return Qwen2VLForConditionalGeneration(config)


@pytest.mark.parametrize(
    ("options", "in_prompts"),
    [({"images": True}, 4), ({"prompt": "session", "images": True}, 4), ({"prompt": "session"}, 4), ({}, 0)],
)
def test_images_of_prompt_and_tool_reach_the_model(options: dict[str, Any], in_prompts: int, base_url: str, tmp_path: Path) -> None:
    processor = make_processor()
    model = make_vision_model(processor)
    seen: list[int] = []
    model.model.visual.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(len(kwargs["grid_thw"] if "grid_thw" in kwargs else args[1])), with_kwargs=True
    )
    with ORSSpec(base_url, "faulty", num_tasks=2, **options) as spec:
        trainer = make_trainer(
            tmp_path,
            spec.trainer_kwargs("environment"),
            tokenizer=processor,
            model=model,
            allowed=[IMAGE],
            per_device_train_batch_size=4,
            max_tool_calling_iterations=1,
        )
        trainer.train()
        steps = [step for group in spec.groups for episode in group.episodes for step in episode.steps]
    assert [step.call.name for step in steps if step.call] == ["image"] * 4
    assert logged(trainer, "tools/failure_frequency") == [0.0]
    assert set(seen) == {in_prompts, in_prompts + 4} - {0}


def test_the_rollout_function_says_that_it_is_for_text(base_url: str, tmp_path: Path) -> None:
    processor = make_processor()
    with ORSSpec(base_url, "faulty", num_tasks=2) as spec:
        trainer = make_trainer(
            tmp_path,
            spec.trainer_kwargs("rollout"),
            tokenizer=processor,
            model=make_vision_model(processor),
            per_device_train_batch_size=4,
        )
        with pytest.raises(ValueError, match="the rollout function is for models of text"):
            trainer.train()
