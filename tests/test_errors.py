"""Every exception: drawn in the tree, of one kind, and picklable."""

import copy
import inspect
import pickle

import pytest

from ors_gym import errors

ALL = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, errors.ORSError)]


@pytest.mark.parametrize("kind", ALL)
def test_an_exception_survives_pickle_and_copy(kind: type[errors.ORSError]) -> None:
    error = kind("what happened", url="http://host", session_id="s1", status=503, detail="words")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is kind
        assert str(other) == "what happened"
        assert (other.url, other.session_id, other.status, other.detail) == ("http://host", "s1", 503, "words")
        assert other.kind == error.kind


@pytest.mark.parametrize("kind", ALL)
def test_every_exception_is_drawn_in_the_tree(kind: type[errors.ORSError]) -> None:
    assert errors.__doc__ is not None
    assert f" {kind.__name__} " in errors.__doc__
    assert kind.__doc__


def test_the_three_kinds_of_trouble() -> None:
    kinds = {kind.__name__: kind.kind for kind in ALL}
    assert {name for name, kind in kinds.items() if kind == "policy"} == {"PolicyError", "InvalidAction", "ToolCallRejected"}
    assert {name for name, kind in kinds.items() if kind == "environment"} == {
        "EnvironmentFailure",
        "ToolFailed",
        "SessionSetupFailed",
    }
    assert {"ConnectionFailed", "TimeoutExceeded", "ServerError", "SessionLost", "ResultLost", "ProtocolError"} <= {
        name for name, kind in kinds.items() if kind == "infrastructure"
    }


def test_a_timeout_is_a_timeout_error() -> None:
    assert issubclass(errors.TimeoutExceeded, TimeoutError)
