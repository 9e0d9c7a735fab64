"""A server that dies in the middle, and what becomes of the training."""

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from ors_gym.client import Retry, Timeout
from ors_gym.errors import ServerDown
from ors_gym.serving import LocalServer
from ors_gym.trl import ORSSpec
from tests.trl.tiny import PRESSES, logged, make_trainer

IMPATIENT: dict[str, Any] = {"retry": Retry(attempts=1), "timeout": Timeout(connect=1.0, setup=2.0)}


def restarted(port: int) -> LocalServer:
    return LocalServer(["tests.trl.environments:Copy"], port=port)


def port_of(server: LocalServer) -> int:
    return int(server.base_url.rsplit(":", 1)[1])


@pytest.mark.parametrize("mode", ["single_turn", "environment", "rollout"])
def test_a_step_without_a_server_completes_and_training_goes_on_when_it_is_back(
    mode: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server is away in the second of four steps: that step has no reward and no gradient, the others have."""
    server = restarted(0).start()
    port = port_of(server)
    back: list[LocalServer] = []

    def switch(trainer_state: Any, completions: list[Any], **kwargs: Any) -> list[None]:
        """Runs after our reward function, at the end of each step's scoring."""
        if trainer_state.global_step == 0:
            server.close()
        if trainer_state.global_step == 1:
            back.append(restarted(port).start())
        return [None] * len(completions)

    try:
        with ORSSpec(server.base_url, "copy", **IMPATIENT) as spec, caplog.at_level(logging.CRITICAL, "trl"):
            kwargs = spec.trainer_kwargs(mode)
            kwargs["reward_funcs"] = [spec.reward_funcs, switch]
            trainer = make_trainer(tmp_path, kwargs, allowed=PRESSES, max_steps=4, per_device_train_batch_size=8)
            trainer.train()
    finally:
        for one in [server, *back]:
            one.close()
    rewards = logged(trainer, "reward")
    assert [reward is None for reward in rewards] == [False, True, False, False]
    assert logged(trainer, "ors/unscored_rate") == [0.0, 1.0, 0.0, 0.0]
    assert logged(trainer, "grad_norm")[1] == 0.0
    assert len(logged(trainer, "loss")) == 4


PRESS = '{"name": "press", "input": {"digit": 0}}'


def lose_steps(spec: ORSSpec, count: int) -> None:
    for _ in range(count):
        assert spec.reward_funcs(["p"] * 2, [PRESS] * 2, ors_split=["train"] * 2, ors_index=[0, 0]) == [None, None]


def test_training_waits_for_the_server_after_three_lost_steps() -> None:
    server = restarted(0).start()
    port = port_of(server)
    with ORSSpec(server.base_url, "copy", **IMPATIENT) as spec:
        _ = spec.train_dataset
        server.close()
        lose_steps(spec, 2)
        back: list[LocalServer] = []
        comes_back = threading.Timer(1.0, lambda: back.append(restarted(port).start()))
        comes_back.start()
        lose_steps(spec, 1)
        comes_back.join()
        assert spec.reward_funcs(["p"], [PRESS], ors_split=["train"], ors_index=[0]) == [1.0]
        back[0].close()


def test_it_waits_for_a_bounded_time_and_then_says_what_it_waited_for() -> None:
    server = restarted(0).start()
    with ORSSpec(server.base_url, "copy", server_down_timeout=1.0, **IMPATIENT) as spec:
        _ = spec.train_dataset
        server.close()
        lose_steps(spec, 2)
        with pytest.raises(
            ServerDown, match=r"all rollouts of 3 steps in a row were lost .* in 1 s of waiting no session could be had"
        ):
            lose_steps(spec, 1)


def test_it_raises_at_once_or_goes_on_where_that_is_wanted() -> None:
    server = restarted(0).start()
    raising, going_on = (ORSSpec(server.base_url, "copy", on_server_down=policy, **IMPATIENT) for policy in ("raise", "continue"))
    with raising, going_on:
        _ = raising.train_dataset, going_on.train_dataset
        server.close()
        lose_steps(going_on, 5)
        lose_steps(raising, 2)
        with pytest.raises(ServerDown):
            lose_steps(raising, 1)


def test_a_scored_rollout_forgets_the_lost_steps_before_it(base_url: str) -> None:
    with ORSSpec(base_url, "faulty", on_server_down="raise") as spec:
        for name in ("boom", "boom", "finish", "boom", "boom"):
            spec.reward_funcs(["p"], [f'{{"name": "{name}"}}'], ors_split=["train"], ors_index=[0])
        with pytest.raises(ServerDown):
            spec.reward_funcs(["p"], ['{"name": "boom"}'], ors_split=["train"], ors_index=[0])


def test_an_unknown_policy_is_refused(base_url: str) -> None:
    with pytest.raises(ValueError, match="on_server_down is"):
        ORSSpec(base_url, on_server_down="panic")  # type: ignore[arg-type]
