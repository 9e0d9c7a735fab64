"""What we use of TRL beyond its documented interface. A failure here says what a new TRL changed."""

import importlib.metadata
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from transformers.utils.chat_parsing.response_templates import load_response_template
from trl import GRPOTrainer, RLOOTrainer, chat_template_utils
from trl.generation.vllm_generation import VLLMGeneration

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_installed_trl_is_in_the_pinned_range() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]["trl"]
    (pin,) = (Requirement(line) for line in extras if Requirement(line).name == "trl")
    assert {specifier.operator for specifier in pin.specifier} == {">=", "<"}
    assert importlib.metadata.version("trl") in pin.specifier


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (GRPOTrainer._generate_single_turn, "self prompt_ids images multimodal_fields num_generations has_tool_images"),
        (GRPOTrainer._generate_and_score_completions, "self inputs"),
        (GRPOTrainer._calculate_rewards, "self inputs prompts completions completion_ids_list"),
        (GRPOTrainer._log_metric, "self name value"),
        (RLOOTrainer._calculate_rewards, "self inputs prompts completions completion_ids_list"),
        (chat_template_utils.parse_response, "tokenizer ids prefix tools"),
        (chat_template_utils.supports_tool_calling, "processing_class"),
        (chat_template_utils.is_chat_template_prefix_preserving, "processing_class"),
        (chat_template_utils.get_training_chat_template, "processing_class tokenizer"),
        (chat_template_utils.add_response_schema, "processing_class"),
        (load_response_template, "spec"),
    ],
)
def test_signatures_are_those_that_we_call(function: Any, parameters: str) -> None:
    assert list(inspect.signature(function).parameters) == parameters.split()


def source(function: Any) -> str:
    """A function's source, each run of white space one space."""
    return re.sub(r"\s+", " ", inspect.getsource(function))


@pytest.mark.parametrize(
    ("function", "line"),
    [
        # `environment_factory`: tools are found on the class and taken from the instance; resets are one loop over the rows
        (GRPOTrainer.__init__, "inspect.getmembers(type(instance), predicate=inspect.isfunction)"),
        (GRPOTrainer.__init__, 'elif not member_name.startswith("_"): methods.append(getattr(instance, member_name))'),
        (GRPOTrainer._generate_and_score_completions, "sync_tool_dict[tool.__name__] = tool"),
        (GRPOTrainer._generate_and_score_completions, "zip(prompts, self.environments, inputs, strict=True)"),
        (GRPOTrainer._generate_and_score_completions, "observation = environment.reset(**reset_kwargs)"),
        (GRPOTrainer._calculate_rewards, 'reward_kwargs["environments"] = self.environments'),
        # a tool's answer that does not fit ends the row, and is taken back
        (GRPOTrainer._tool_call_loop, "len(pct) - len(prompt_ids[i]) > self.max_completion_length"),
        (GRPOTrainer._tool_call_loop, "content = result if isinstance(result, list) else str(result)"),
        # `rollout_func`
        (GRPOTrainer._generate, "output = self.rollout_func(prompts, self)"),
        (GRPOTrainer._generate, 'tool_mask = extra_fields.pop("env_mask", None)'),
        (GRPOTrainer._generate_and_score_completions, "inp[key] = values[i]"),
        (
            GRPOTrainer._generate_single_turn,
            "unwrapped_model.generate( **generate_inputs, generation_config=self.generation_config )",
        ),
        (VLLMGeneration.generate, "max_completion_length = self.max_completion_length"),
    ],
)
def test_lines_that_we_build_on_are_there(function: Any, line: str) -> None:
    assert line in source(function)


@pytest.mark.parametrize(
    "name",
    [
        "chat_template",
        "chat_template_kwargs",
        "max_completion_length",
        "use_vllm",
        "vllm_mode",
        "generation_config",
        "vllm_generation",
    ],
)
def test_attributes_that_we_read_are_set(name: str) -> None:
    assert f"self.{name} = " in source(GRPOTrainer.__init__)
