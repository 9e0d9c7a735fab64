"""Gymnasium environments as ORS: tasks, prompts, schemas, images, errors, and threads."""

import base64
import io
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image

from ors_gym.client import Environment, ORSClient, Session
from ors_gym.errors import SessionSetupFailed, ToolCallRejected
from ors_gym.protocol import Blocks, ImageBlock, TextBlock, text_of
from ors_gym.schemas import sample
from ors_gym.serving import LocalServer, gymnasium_environment
from ors_gym.spaces.exact import decode


class Everything(gym.Env[Any, Any]):
    """Says of each action what it received, in an observation of every kind."""

    action_space = spaces.Dict(
        {
            "move": spaces.Discrete(3, start=-1),
            "push": spaces.Box(-1, 1, (2,), np.float32),
            "lights": spaces.MultiBinary(3),
            "say": spaces.Text(5, min_length=0),
            "pair": spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.Discrete(2)]),
            "one": spaces.OneOf([spaces.Discrete(2), spaces.Text(3)]),
            "list": spaces.Sequence(spaces.Discrete(4)),
        }
    )
    observation_space = spaces.Dict(
        {"said": spaces.Text(1000), "big": spaces.Box(0, 255, (40, 40), np.uint8), "n": spaces.Discrete(9)}
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._see("nothing"), {"thing": object, "nan": float("nan")}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        return self._see(repr(action)), float("nan"), False, bool(action["move"] == 1), {}

    def _see(self, said: str) -> dict[str, Any]:
        return {"said": said, "big": np.full((40, 40), 7, np.uint8), "n": np.int64(3)}


class Slow(gym.Env[Any, Any]):
    """A step takes until another session's step begins: it only ends if both run at once."""

    action_space = observation_space = spaces.Discrete(2)
    barrier = threading.Barrier(3)
    closed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        return Slow.closed % 2, {"closed": Slow.closed}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if action == 1:
            Slow.barrier.wait(10)
        return 0, 1.0, False, False, {"thread": threading.current_thread().name}

    def close(self) -> None:
        Slow.closed += 1


class Broken(gym.Env[Any, Any]):
    """Cannot be reset with an odd seed, and raises in its step."""

    action_space = observation_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        if seed and seed % 2:
            raise RuntimeError("odd seeds are not for me")
        return 0, {}

    def step(self, action: Any) -> Any:
        raise RuntimeError("the step broke")


@pytest.fixture(scope="module")
def client() -> Iterator[ORSClient]:
    targets = [
        *(f"gym:{gym_id}" for gym_id in ("CartPole-v1", "FrozenLake-v1", "CliffWalking-v1", "Pendulum-v1", "Blackjack-v1")),
        gymnasium_environment(Everything, env_name="everything", num_train=5, num_test=0),
        gymnasium_environment(Slow, env_name="slow"),
        gymnasium_environment(lambda: Broken(), env_name="broken"),
        "gym:FrozenLake-v1?env_name=ice&is_slippery=false&render_mode=ansi&num_test=3",
        gymnasium_environment(
            gym.spec("CartPole-v1"), env_name="pole", render_mode=None, action_meanings=["west", "east"], description="Balance."
        ),
    ]
    with LocalServer(targets) as server, ORSClient(server.base_url) as client:
        yield client


def parameters(environment: Environment) -> dict[str, Any]:
    (step,) = environment.list_tools()
    assert step.name == "step"
    assert step.input_schema is not None
    assert step.input_schema["required"] == ["action"]
    assert step.input_schema["additionalProperties"] is False
    return dict(step.input_schema["properties"]["action"])


def image_of(blocks: Blocks) -> Image.Image:
    (block,) = [block for block in blocks if isinstance(block, ImageBlock)]
    assert block.mimeType == "image/png"
    return Image.open(io.BytesIO(base64.b64decode(block.data)))


def step(session: Session, action: Any) -> Any:
    return session.call_tool("step", {"action": action})


def test_a_task_is_a_seed_and_the_splits_share_none(client: ORSClient) -> None:
    environment = client.environment("cartpole-v1")

    assert [(split.name, split.type) for split in environment.list_splits()] == [("train", "train"), ("test", "test")]
    assert (environment.num_tasks("train"), environment.num_tasks("test")) == (10_000, 1_000)
    assert environment.get_task("train", 9_999) == {"seed": 9_999}
    assert environment.get_task("test", 0) == {"seed": 1_000_000_000}
    assert environment.get_task_range("train", -2) == ({"seed": 9_998}, {"seed": 9_999})


def test_sizes_are_configurable_and_an_empty_split_is_left_out(client: ORSClient) -> None:
    assert client.environment("ice").num_tasks("test") == 3
    assert [split.name for split in client.environment("everything").list_splits()] == ["train"]


def test_any_seed_can_be_the_task(client: ORSClient) -> None:
    native = gym.make("CartPole-v1")
    expected, _ = native.reset(seed=123_456)

    with client.environment("cartpole-v1").session(task_spec={"seed": 123_456}) as session:
        detail = session.get_prompt()[0].detail

    assert detail is not None
    np.testing.assert_array_equal(decode(detail["ors_gym"]["observation"]), expected)


@pytest.mark.parametrize("task", [{}, {"seed": "x"}, {"seed": -1}, {"seed": True}])
def test_a_task_without_a_seed_cannot_be_set_up(client: ORSClient, task: dict[str, Any]) -> None:
    with pytest.raises(SessionSetupFailed, match="a task of ice is"), client.environment("ice").session(task_spec=task) as session:
        session.get_prompt()


def test_the_prompt_describes_the_environment_its_spaces_and_the_first_observation(client: ORSClient) -> None:
    with client.environment("cliffwalking-v1").session(split="train", index=0) as session:
        prompt = text_of(session.get_prompt())

    assert prompt.startswith("You act in the environment CliffWalking-v1.")
    assert "Each time step incurs -1 reward" in prompt
    assert "Discrete(4) (0 = Move up, 1 = Move right, 2 = Move down, 3 = Move left)" in prompt
    assert "The observation space is Discrete(48)." in prompt
    assert prompt.endswith("The first observation: 36")
    assert "gym.make" not in prompt
    assert "Version History" not in prompt


def test_description_and_meanings_can_be_given(client: ORSClient) -> None:
    environment = client.environment("pole")

    assert parameters(environment)["description"] == "0: west; 1: east"
    with environment.session(split="train", index=0) as session:
        prompt = session.get_prompt()
    assert text_of(prompt).startswith("You act in the environment CartPole-v1.\n\nBalance.\n\nCall the tool `step`")
    assert len(prompt) == 1


@pytest.mark.parametrize(
    ("env_name", "expected"),
    [
        (
            "frozenlake-v1",
            {"type": "integer", "enum": [0, 1, 2, 3], "description": "0: Move left; 1: Move down; 2: Move right; 3: Move up"},
        ),
        (
            "pendulum-v1",
            {"type": "array", "minItems": 1, "maxItems": 1, "items": {"type": "number", "minimum": -2.0, "maximum": 2.0}},
        ),
        ("blackjack-v1", {"type": "integer", "enum": [0, 1], "description": "0: Stick; 1: Hit"}),
    ],
)
def test_the_tools_schema_is_the_action_space(client: ORSClient, env_name: str, expected: dict[str, Any]) -> None:
    schema = parameters(client.environment(env_name))
    schema.pop("title", None)

    assert schema == expected


def test_a_step_answers_with_text_image_reward_and_the_exact_rest(client: ORSClient) -> None:
    native = gym.make("CartPole-v1")
    native.reset(seed=3)
    observation, *_ = native.step(1)

    with client.environment("cartpole-v1").session(split="train", index=3) as session:
        output = step(session, 1)

    assert text_of(output.blocks) == f"Observation: [{', '.join(map(str, observation))}]\nReward: 1"
    assert image_of(output.blocks).size == (600, 400)
    assert (output.reward, output.finished) == (1.0, False)
    exact = output.metadata["ors_gym"]
    assert (exact["terminated"], exact["truncated"], decode(exact["info"])) == (False, False, {})
    restored = decode(exact["observation"])
    assert restored.dtype == np.float32
    np.testing.assert_array_equal(restored, observation)


def test_the_image_is_what_the_environment_renders(client: ORSClient) -> None:
    native = gym.make("CliffWalking-v1", render_mode="rgb_array")
    native.reset(seed=0)

    with client.environment("cliffwalking-v1").session(split="train", index=0) as session:
        before = np.asarray(image_of(session.get_prompt()))
        after = np.asarray(image_of(step(session, 0).blocks))

    np.testing.assert_array_equal(before, native.render())
    native.step(0)
    np.testing.assert_array_equal(after, native.render())
    assert (before != after).any()


def test_the_mode_ansi_gives_a_text_block(client: ORSClient) -> None:
    with client.environment("ice").session(split="train", index=0) as session:
        first, picture = session.get_prompt()
        moved = step(session, 2)

    assert isinstance(first, TextBlock)
    assert isinstance(picture, TextBlock)
    assert picture.text.count("\n") >= 4
    assert "Right" in text_of(moved.blocks)


@pytest.mark.parametrize("action", [4, -1, "up", None, [0], 1.5, True])
def test_an_action_outside_the_space_is_refused_and_the_environment_does_not_step(client: ORSClient, action: Any) -> None:
    with client.environment("ice").session(split="train", index=0) as session:
        with pytest.raises(ToolCallRejected, match="action must be an integer from 0 to 3"):
            step(session, action)
        output = step(session, 2)

    assert output.metadata["ors_gym"]["observation"] == 1


def test_finished_is_terminated(client: ORSClient) -> None:
    with client.environment("ice").session(split="train", index=0) as session:
        outputs = [step(session, action) for action in (1, 1, 2, 1, 2, 2)]
        after = step(session, 0)

    assert [output.reward for output in outputs] == [0, 0, 0, 0, 0, 1]
    assert [output.finished for output in outputs] == [False] * 5 + [True]
    assert text_of(outputs[-1].blocks).startswith("Observation: 15\nReward: 1\nThe episode is over.")
    assert (after.reward, after.finished) == (None, True)
    assert text_of(after.blocks) == "The episode is over. No step was taken."


def test_finished_is_also_truncated(client: ORSClient) -> None:
    with client.environment("everything").session(split="train", index=0) as session:
        output = step(session, {**action_of_everything(), "move": 1})

    assert output.finished
    assert output.reward is None  # NaN is no number in JSON
    assert output.metadata["ors_gym"]["terminated"] is False
    assert output.metadata["ors_gym"]["truncated"] is True
    assert np.isnan(decode(output.metadata["ors_gym"]["reward"]))


def action_of_everything() -> dict[str, Any]:
    return {
        "move": 0,
        "push": [0.5, -1.0],
        "lights": [1, 0, 1],
        "say": "hello",
        "pair": [[1, 2], 0],
        "one": {"choice": 1, "value": "abc"},
        "list": [3, 0],
    }


def test_nested_actions_arrive_as_native_ones(client: ORSClient) -> None:
    environment = client.environment("everything")
    schema = parameters(environment)
    rng = np.random.default_rng(0)

    with environment.session(split="train", index=0) as session:
        said = decode(step(session, action_of_everything()).metadata["ors_gym"]["observation"])["said"]
        drawn = [step(session, {**sample(schema, rng), "move": 0}) for _ in range(20)]

    assert "'push': array([ 0.5, -1. ], dtype=float32)" in said
    assert "'one': (np.int64(1), 'abc')" in said
    assert len(drawn) == 20


def test_a_nested_action_outside_its_space_says_where(client: ORSClient) -> None:
    with client.environment("everything").session(split="train", index=0) as session:
        with pytest.raises(ToolCallRejected, match=r"action\.pair\[0\]\[1\] must be an integer from 0 to 2, not 9"):
            step(session, {**action_of_everything(), "pair": [[1, 9], 0]})


def test_large_arrays_are_shortened_in_the_text_and_whole_in_the_metadata(client: ORSClient) -> None:
    with client.environment("everything").session(split="train", index=0) as session:
        (prompt,) = session.get_prompt()

    assert "big: an array of shape (40, 40) and type uint8" in text_of((prompt,))
    assert prompt.detail is not None
    assert decode(prompt.detail["ors_gym"]["observation"])["big"].sum() == 40 * 40 * 7
    assert decode(prompt.detail["ors_gym"]["info"])["thing"] == "<class 'object'>"


def test_sessions_step_in_threads_of_their_own(client: ORSClient) -> None:
    environment = client.environment("slow")
    sessions = [environment.session(split="train", index=index) for index in range(3)]
    for session in sessions:
        session.start()

    with ThreadPoolExecutor(3) as pool:
        outputs = list(pool.map(lambda session: step(session, 1), sessions))

    assert [output.reward for output in outputs] == [1.0, 1.0, 1.0]
    threads = {decode(output.metadata["ors_gym"]["info"])["thread"] for output in outputs}
    assert all(name.startswith("slow") for name in threads)
    for session in sessions:
        session.close()


def test_a_deleted_session_closes_its_environment(client: ORSClient) -> None:
    def closed() -> int:
        with environment.session(split="train", index=0) as session:
            detail = session.get_prompt()[0].detail
            assert detail is not None
            return int(decode(detail["ors_gym"]["info"])["closed"])

    environment = client.environment("slow")
    before = closed()

    assert closed() == before + 1


def test_a_reset_that_raises_is_a_setup_that_failed(client: ORSClient) -> None:
    environment = client.environment("broken")

    with (
        pytest.raises(SessionSetupFailed, match="odd seeds are not for me"),
        environment.session(split="train", index=1) as session,
    ):
        session.get_prompt()
    with environment.session(split="train", index=0) as session:
        assert text_of(session.get_prompt()).endswith("The first observation: 0")


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ("Nope-v0", {}, gym.error.Error, "Nope"),
        ("CartPole-v1", {"no_such_option": 1}, TypeError, "no_such_option"),
        ("CartPole-v1", {"num_train": 0, "num_test": 0}, ValueError, "num_train and num_test"),
        ("CartPole-v1", {"num_train": -1}, ValueError, "num_train and num_test"),
        (7, {}, TypeError, "env is a Gymnasium id"),
    ],
)
def test_what_cannot_be_served_is_refused(arguments: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gymnasium_environment(arguments, **options)


def test_an_action_space_without_a_schema_is_refused() -> None:
    class Graphs(Everything):
        action_space = spaces.Graph(spaces.Discrete(2), None)  # type: ignore[assignment]

    with pytest.raises(TypeError, match="cannot be written as a JSON Schema"):
        gymnasium_environment(Graphs)
