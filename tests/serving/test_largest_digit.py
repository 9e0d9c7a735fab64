"""The bundled environment: a thousand strings of three digits, and the largest of them is the answer."""

from collections.abc import Iterator

import pytest

from ors_gym.client import Environment, ORSClient
from ors_gym.protocol import text_of
from ors_gym.serving import LocalServer


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    with LocalServer(["ors_gym.serving.largest_digit:LargestDigit"]) as server, ORSClient(server.base_url) as client:
        yield client.environment("largest_digit")


def test_the_thousand_strings_are_split_900_to_100_and_none_is_in_both(environment: Environment) -> None:
    train = [task["digits"] for task in environment.list_tasks("train")]
    test = [task["digits"] for task in environment.list_tasks("test")]

    assert (len(train), len(test)) == (900, 100)
    assert sorted(train + test) == [f"{number:03d}" for number in range(1000)]


def test_the_shuffle_is_fixed(environment: Environment) -> None:
    assert [task["digits"] for task in environment.get_task_range("train", 0, 5)] == ["439", "621", "160", "549", "237"]
    assert [task["digits"] for task in environment.get_task_range("test", -2)] == ["394", "864"]


def test_the_one_tool_takes_the_answer(environment: Environment) -> None:
    (tool,) = environment.list_tools()

    assert tool.name == "submit"
    assert tool.input_schema is not None
    assert tool.input_schema["required"] == ["answer"]
    assert tool.input_schema["properties"]["answer"]["type"] == "string"


@pytest.mark.parametrize(
    ("digits", "answer", "reward"),
    [("042", "4", 1.0), ("042", "2", 0.0), ("777", "7", 1.0), ("950", " 9\n", 1.0), ("123", "", 0.0), ("123", "33", 0.0)],
)
def test_the_reward_is_one_for_the_largest_digit_and_the_episode_ends(
    environment: Environment, digits: str, answer: str, reward: float
) -> None:
    with environment.session(task_spec={"digits": digits}) as session:
        prompt = text_of(session.get_prompt())
        output = session.call_tool("submit", {"answer": answer})

    assert prompt == f"{digits}="
    assert (output.reward, output.finished) == (reward, True)
