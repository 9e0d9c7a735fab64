"""The datasets of reasoning-gym as ORS: all of them load and play."""

from collections.abc import Iterator

import pytest
from reasoning_gym.factory import DATASETS, create_dataset

from ors_gym.client import ORSClient
from ors_gym.errors import SessionSetupFailed
from ors_gym.protocol import text_of
from ors_gym.serving import LocalServer, reasoning_gym_environment

NAMES = sorted(DATASETS)


@pytest.fixture(scope="module")
def client() -> Iterator[ORSClient]:
    targets = [f"reasoning_gym:{name}?size=20&num_test=5&seed=3" for name in NAMES]
    targets += ["reasoning_gym:basic_arithmetic?env_name=sums&max_terms=2&operators=%5B%22%2B%22%5D&size=7"]
    mix = reasoning_gym_environment(
        "composite",
        env_name="mix",
        datasets=[{"name": "chain_sum"}, {"name": "leg_counting", "weight": 3.0, "config": {"max_animals": 4}}],
    )
    with LocalServer([*targets, mix], start_timeout=120) as server, ORSClient(server.base_url) as client:
        yield client


def test_the_whole_registry_is_here() -> None:
    assert len(NAMES) >= 100


@pytest.mark.parametrize("name", NAMES)
def test_a_dataset_loads_and_plays(client: ORSClient, name: str) -> None:
    environment = client.environment(name)
    assert (environment.num_tasks("train"), environment.num_tasks("test")) == (20, 5)

    with environment.session(split="test", index=4) as session:
        prompt = text_of(session.get_prompt())
        output = session.call_tool("answer", {"answer": "I do not know"})

    assert prompt
    assert output.finished
    assert output.reward is not None
    assert 0.0 <= output.reward <= 1.0


@pytest.mark.parametrize("name", ["basic_arithmetic", "chain_sum", "word_sorting", "sudoku", "leg_counting", "base_conversion"])
def test_the_verifiers_score_is_the_reward(client: ORSClient, name: str) -> None:
    entry = create_dataset(name, seed=3, size=20)[7]

    with client.environment(name).session(split="train", index=7) as session:
        prompt = text_of(session.get_prompt())
        output = session.call_tool("answer", {"answer": entry["answer"]})

    assert prompt == entry["question"]
    assert (output.reward, output.finished, text_of(output.blocks)) == (1.0, True, "Score: 1")


def test_an_answer_that_a_verifier_stumbles_over_scores_zero(client: ORSClient) -> None:
    with client.environment("prime_factorization").session(split="train", index=0) as session:
        assert session.call_tool("answer", {"answer": "two times three"}).reward == 0.0


def test_a_task_is_a_place_in_a_split_and_holds_no_answer(client: ORSClient) -> None:
    environment = client.environment("sums")

    assert environment.get_task("train", 6) == {"split": "train", "index": 6}
    with environment.session(task_spec={"split": "train", "index": 6}) as session:
        assert text_of(session.get_prompt()) == text_of_task(client, "sums", 6)


def text_of_task(client: ORSClient, env_name: str, index: int) -> str:
    with client.environment(env_name).session(split="train", index=index) as session:
        return text_of(session.get_prompt())


def test_the_configuration_reaches_the_dataset(client: ORSClient) -> None:
    prompts = [text_of_task(client, "sums", index) for index in range(7)]

    assert all("+" in prompt and "*" not in prompt for prompt in prompts)


def test_the_splits_share_no_question(client: ORSClient) -> None:
    train = {text_of_task(client, "basic_arithmetic", index) for index in range(20)}
    with client.environment("basic_arithmetic").session(split="test", index=0) as session:
        assert text_of(session.get_prompt()) not in train


def test_a_composite_mixes_what_it_is_given(client: ORSClient) -> None:
    prompts = [text_of_task(client, "mix", index) for index in range(12)]

    assert 0 < sum("legs" in prompt for prompt in prompts) < 12


@pytest.mark.parametrize("task", [{}, {"split": "train"}, {"split": "train", "index": 20}, {"split": "other", "index": 0}])
def test_a_task_that_is_not_there_cannot_be_set_up(client: ORSClient, task: dict[str, object]) -> None:
    with (
        pytest.raises(SessionSetupFailed, match="a task of chain_sum is"),
        client.environment("chain_sum").session(task_spec=task) as s,
    ):
        s.get_prompt()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("no_such_dataset", {}, "reasoning-gym has no dataset 'no_such_dataset'"),
        ("chain_sum", {"no_such_option": 1}, "refuses the configuration"),
        ("chain_sum", {"min_terms": 0}, "min_terms must be positive"),
        ("chain_sum", {"size": 0}, "size and num_test must be at least 1"),
        ("composite", {"datasets": []}, "Must specify at least one dataset"),
    ],
)
def test_what_cannot_be_made_is_refused(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        reasoning_gym_environment(name, **options)  # type: ignore[arg-type]
