"""`import ors_gym` is light, and exports what it says."""

import subprocess
import sys

import ors_gym

HEAVY = ("torch", "trl", "transformers", "datasets", "pandas", "fastapi", "uvicorn", "ors", "openreward", "matplotlib", "PIL")


def test_import_brings_nothing_heavy_and_starts_no_thread() -> None:
    program = (
        "import sys, threading, ors_gym\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)), threading.active_count())\n"
        "import gymnasium; print('ors_gym/ORS-v0' in gymnasium.registry)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split("\n")[:2] == ["[] 1", "True"]


def test_exported_names() -> None:
    assert sorted(ors_gym.__all__) == [
        "AsyncORSClient",
        "AsyncORSEnv",
        "AsyncioVectorEnv",
        "EnvSecret",
        "Episode",
        "ORSClient",
        "ORSEnv",
        "ORSEnvPool",
        "ORSError",
        "ORSVectorEnv",
        "Retry",
        "RolloutGroup",
        "Step",
        "TaskRef",
        "Timeout",
        "ToolCall",
        "ToolOutput",
        "ToolSpec",
        "__version__",
        "load_records",
        "register_server",
    ]


def test_every_exported_name_and_room_is_there() -> None:
    for name in ors_gym.__all__:
        assert getattr(ors_gym, name) is not None
    for room in ("serving", "rollout", "wrappers", "conformance", "spaces", "actions"):
        assert getattr(ors_gym, room).__name__ == f"ors_gym.{room}"
