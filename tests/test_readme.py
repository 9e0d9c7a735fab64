"""Every Python snippet of the README runs, against a local server in place of `localhost:8080`."""

import ast
import asyncio
import inspect
import re
from pathlib import Path

import pytest

from ors_gym.serving import LocalServer

ROOT = Path(__file__).parents[1]
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SNIPPETS = [(number, match.group(1)) for number, match in enumerate(SNIPPET.finditer((ROOT / "README.md").read_text()), start=1)]


@pytest.fixture(scope="module")
def base_url():
    with LocalServer(["ors_gym.serving.largest_digit:LargestDigit"]) as server:
        yield server.base_url


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all snippets run, in their order: later ones read what earlier ones wrote."""
    return tmp_path_factory.mktemp("readme")


@pytest.mark.parametrize(("number", "source"), SNIPPETS, ids=[f"snippet-{number}" for number, _ in SNIPPETS])
def test_readme_snippet_runs(number: int, source: str, base_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    code = compile(
        source.replace("http://localhost:8080", base_url), f"README.md snippet {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    result = eval(code, {"__name__": f"readme_{number}"})
    if inspect.iscoroutine(result):
        asyncio.run(result)


def test_the_readme_has_snippets() -> None:
    assert len(SNIPPETS) >= 5
