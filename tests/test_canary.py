"""One canary, looked for in everything that an episode leaves behind: reprs, logs, exceptions, specs, records, pages."""

import json
import logging
import pickle
import traceback
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import ors_gym
from ors_gym import EnvSecret, errors
from ors_gym.records import load_records, write_records
from ors_gym.testing import Fault, FaultServer, Request

CANARY = "canary-5f0c-secret"
API_KEY = "canary-5f0c-api-key"


def echo(request: Request) -> Fault | None:
    """A server whose refusals send everything back that it was sent."""
    if request.endpoint not in ("create", "call", "delete"):
        return None
    words = f"{request.body.decode()} {dict(request.headers)}"
    return Fault(status=422, body=json.dumps({"detail": [{"loc": ["body", "x"], "msg": words, "input": words}]}).encode())


def assert_clean(*texts: str) -> None:
    for text in texts:
        assert "canary-5f0c" not in text, text


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("ORS_API_KEY", API_KEY)
    monkeypatch.setenv("MY_SECRET", CANARY)
    with FaultServer() as server:
        yield server


def make(server: FaultServer, **options: Any) -> gym.Env[Any, Any]:
    return gym.make("ors_gym/ORS-v0", base_url=server.base_url, secrets={"key": EnvSecret("MY_SECRET")}, **options)


def test_an_episodes_traces(server: FaultServer, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.DEBUG)
    env = make(server)
    _, info = env.reset(seed=0)
    assert server.received("create")[0].json()["secrets"] == {"key": CANARY}
    server.decide = echo
    _, _, _, _, after = env.step({"name": "echo", "input": {"text": "hello"}})
    assert "[redacted]" in after["invalid_action"]
    server.decide = None
    env.step({"name": "submit", "input": {"answer": "right"}})
    episode = env.unwrapped.episode  # type: ignore[attr-defined]
    page = "".join(view() for view in (getattr(part, "_repr_html_", str) for part in (episode, env.unwrapped)))
    write_records(tmp_path / "episodes.jsonl", [episode])
    written = (tmp_path / "episodes.jsonl").read_text()
    assert env.spec is not None
    spec = [repr(env.spec), env.spec.to_json(), str(env.spec.kwargs), repr(pickle.dumps(env.spec))]
    logged = [f"{record.name} {record.getMessage()} {record.__dict__}" for record in caplog.records]
    assert_clean(repr(env), str(env.unwrapped), repr(episode), page, written, str(info), str(after), *spec, *logged)
    assert_clean(repr(load_records(tmp_path / "episodes.jsonl")))
    env.close()


def test_a_reset_that_is_refused(server: FaultServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    env = make(server)
    server.decide = echo
    with pytest.raises(errors.ORSError) as refused:
        env.reset(seed=0)
    assert "[redacted]" in str(refused.value)
    assert_clean(str(refused.value), repr(refused.value), refused.value.detail, "".join(traceback.format_exception(refused.value)))
    assert_clean(repr(env.unwrapped.episode), *(record.getMessage() for record in caplog.records))  # type: ignore[attr-defined]
    env.close()


@pytest.mark.parametrize("options", [{"secrets": {"key": CANARY}}, {"api_key": API_KEY}])
def test_gym_make_refuses_what_it_would_print(server: FaultServer, options: dict[str, Any]) -> None:
    with pytest.raises(Exception) as refused:
        gym.make("ors_gym/ORS-v0", base_url=server.base_url, no_such_argument=1, **options)
    assert_clean(*("".join(traceback.format_exception(refused.value)).split("gym.make(")[-1:]))
    assert_clean(str(refused.value))


def test_a_vector_environment(server: FaultServer) -> None:
    envs = ors_gym.ORSVectorEnv(2, server.base_url, secrets={"key": CANARY}, api_key=API_KEY)
    _, info = envs.reset(seed=0)
    server.decide = echo
    with pytest.raises(errors.ORSError) as refused:
        envs.reset(seed=1)
    assert "[redacted]" in str(refused.value)
    assert_clean(repr(envs), str(info), repr(envs.spec), str(refused.value))
    envs.close()
