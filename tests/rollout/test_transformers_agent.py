"""`TransformersAgent` with a tiny model of random weights: batches, and what a batch must not change."""

import asyncio
import pickle
import time
from typing import Any

import pytest

from ors_gym.client import AsyncORSClient
from ors_gym.env import InfoDict
from ors_gym.episode import Episode, Step
from ors_gym.protocol import TextBlock, ToolCall
from ors_gym.rollout import Conversation, Tasks, TransformersAgent, collect_episodes, run_episode
from ors_gym.tasks import TaskRef
from tests.servers.sdk_server import SDKServer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}{{ '\\n' }}{% endfor %}"
    "{% if tools %}{{ tools | length }}{% endif %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


class _Counting:
    """A model that takes a while, as larger ones do, and the sizes of the batches that it was given."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.batches: list[int] = []

    def generate(self, **arguments: Any) -> Any:
        self.batches.append(len(arguments["input_ids"]))
        time.sleep(0.05)
        return self._model.generate(**arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    characters = [chr(code) for code in range(32, 127)] + ["\n"]
    vocabulary = {token: number for number, token in enumerate(["<pad>", "<eos>", "<unk>", *characters])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    inner.decoder = decoders.Fuse()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", chat_template=TEMPLATE
    )


@pytest.fixture(scope="module")
def weights(tokenizer: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        initializer_range=0.5,
    )
    return transformers.Qwen2ForCausalLM(config).eval()


@pytest.fixture
def model(weights: Any) -> _Counting:
    return _Counting(weights)


def _conversation(prompt: str) -> Conversation:
    info: InfoDict = {}  # type: ignore[typeddict-item]
    return Conversation(Episode(TaskRef("train", 0), prompt=(TextBlock(text=prompt),)), prompt, info, 0)


async def test_conversations_that_wait_together_are_generated_together_and_say_what_each_says_alone(
    model: _Counting, tokenizer: Any
) -> None:
    agent = TransformersAgent(model, tokenizer, batch_size=4, generation={"max_new_tokens": 12, "do_sample": False})
    prompts = ["a", "a rather longer prompt than the others", "bb", "12345", "x", "the last"]
    together = await asyncio.gather(*(agent.act(_conversation(prompt)) for prompt in prompts))
    assert model.batches == [4, 2]
    alone = [await agent.act(_conversation(prompt)) for prompt in prompts]
    assert together == alone
    assert len(set(alone)) > 1


async def test_tokens_are_counted_and_the_end_of_turn_is_cut_off(model: _Counting, tokenizer: Any) -> None:
    suppressed = [token for token in range(len(tokenizer)) if token not in (1, 40)]
    agent = TransformersAgent(
        model, tokenizer, generation={"max_new_tokens": 30, "do_sample": True, "temperature": 50.0, "suppress_tokens": suppressed}
    )
    torch.manual_seed(0)
    conversations = [_conversation("Hello") for _ in range(8)]
    texts = await asyncio.gather(*map(agent.act, conversations))
    letter = tokenizer.decode([40])
    for text, conversation in zip(texts, conversations, strict=True):
        counted = conversation.episode.metadata["agent"]
        assert text == letter * len(text)
        assert counted["completion_tokens"] == (len(text) + 1 if len(text) < 30 else 30)
        assert counted["prompt_tokens"] == len("<user>Hello\n<assistant>")
    assert len({len(text) for text in texts}) > 1


async def test_the_template_sees_calls_as_objects_and_the_tools(model: _Counting, tokenizer: Any, real_server: SDKServer) -> None:
    agent = TransformersAgent(model, tokenizer, system_prompt="Count.", generation={"max_new_tokens": 4})
    async with AsyncORSClient(real_server.base_url) as client:
        episode = await run_episode(agent, client.environment("counter"), TaskRef("train", 0), max_steps=2)
    assert episode.num_steps == 2
    assert episode.metadata["agent"]["prompt_tokens"] > 2 * len("<system>Count.\n<user>Count to 3.\n1<assistant>") - 1
    call = ToolCall(name="add", input={"amount": 2})
    said = Episode(TaskRef("train", 0), prompt=(TextBlock(text="Go."),), steps=[Step(call, call)])
    info: InfoDict = {}  # type: ignore[typeddict-item]
    conversation = Conversation(said, "", info, 1)
    await agent.act(conversation)
    rendered = '<system>Count.\n<user>Go.\n<assistant>{"amount": 2}\n<tool>\n<assistant>'
    assert said.metadata["agent"]["prompt_tokens"] == len(rendered)


async def test_a_collection_shares_batches(model: _Counting, tokenizer: Any, real_server: SDKServer) -> None:
    agent = TransformersAgent(model, tokenizer, generation={"max_new_tokens": 1, "do_sample": False, "suppress_tokens": [0, 1]})
    episodes = await collect_episodes(agent, Tasks(real_server.base_url, "arithmetic"), max_concurrency=20)
    assert [episode.terminated for episode in episodes] == [True] * 20
    assert sum(model.batches) == 20
    assert len(model.batches) < 20


async def test_what_the_model_raises_is_each_conversations_and_the_next_batch_goes_on(model: _Counting, tokenizer: Any) -> None:
    agent = TransformersAgent(model, tokenizer, generation={"max_new_tokens": 4, "do_sample": False, "no_such_option": 1})
    outcomes = await asyncio.gather(*(agent.act(_conversation("x")) for _ in range(2)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ValueError, ValueError]
    agent.generation.pop("no_such_option")
    assert isinstance(await agent.act(_conversation("x")), str)


async def test_a_conversation_that_is_cancelled_leaves_the_others_alone(model: _Counting, tokenizer: Any) -> None:
    agent = TransformersAgent(model, tokenizer, generation={"max_new_tokens": 4, "do_sample": False})
    first, second = (asyncio.create_task(agent.act(_conversation(text))) for text in ("a", "b"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == await agent.act(_conversation("b"))
    assert first.cancelled()


def test_its_arguments(weights: Any, tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="batch_size"):
        TransformersAgent(weights, tokenizer, batch_size=0)
    agent = TransformersAgent(weights, tokenizer)
    assert agent.generation == {"max_new_tokens": 256}
    assert repr(pickle.loads(pickle.dumps(agent))) == repr(agent) == "TransformersAgent('Qwen2ForCausalLM')"
