"""In a Jupyter kernel, whose event loop runs: the synchronous names, top-level `await`, progress, and what shows itself."""

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook


def _run(*cells: str) -> list[list[nbformat.NotebookNode]]:
    """Each cell's outputs, after a fresh kernel ran them."""
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return [cell.outputs for cell in notebook.cells]


@pytest.fixture(scope="module")
def outputs(ors_server) -> dict[str, list[nbformat.NotebookNode]]:
    cells = {
        "imports": f"import ors_gym\nurl = {ors_server.base_url!r}",
        "tools": "client = ors_gym.ORSClient(url)\nenvironment = client.environment('arithmetic')\nenvironment.list_tools()",
        "prompt": "session = environment.session(split='train', index=3)\nsession.start()\nsession.get_prompt()",
        "output": "session.call_tool('submit', {'answer': '7'})",
        "episode": (
            "env = ors_gym.ORSEnv(url, 'arithmetic')\nenv.reset(options={'index': 3})\n"
            "env.step({'name': 'submit', 'input': {'answer': '7'}})\nenv.episode"
        ),
        "awaited": (
            "async with ors_gym.AsyncORSClient(url) as other:\n"
            "    async with other.environment('arithmetic').session(split='train', index=3) as opened:\n"
            "        print((await opened.get_prompt())[0].text)"
        ),
        "group": (
            "from ors_gym.rollout import RandomAgent, Tasks, collect_groups, evaluate\n"
            "[group] = await collect_groups(RandomAgent(), Tasks(url, 'arithmetic', num_tasks=1), group_size=3, progress=True)\n"
            "group"
        ),
        "results": "await evaluate(RandomAgent(), url, 'test', env_name='arithmetic', num_tasks=2, max_steps=3)",
        "closing": "env.close()\nsession.close()\nclient.close()",
    }
    return dict(zip(cells, _run(*cells.values()), strict=True))


def _html(outputs: list[nbformat.NotebookNode]) -> str:
    """The HTML of the cell's result."""
    [result] = [output for output in outputs if output.output_type == "execute_result"]
    return result.data["text/html"]


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("tools", ["submit", "think", "Submit the answer."]),
        ("prompt", ["What is 3 + 4?"]),
        ("output", ["Correct!", "reward 1", "finished"]),
        ("episode", ["arithmetic train/3", "What is 3 + 4?", "Correct!", "reward 1"]),
        ("group", ["group train/0", "advantage"]),
        ("results", ["arithmetic", "mean reward"]),
    ],
)
def test_it_shows_itself(outputs: dict[str, list[nbformat.NotebookNode]], cell: str, shown: list[str]) -> None:
    for expected in shown:
        assert expected in _html(outputs[cell])


def test_top_level_await(outputs: dict[str, list[nbformat.NotebookNode]]) -> None:
    assert outputs["awaited"][0].text == "What is 3 + 4?\n"


def test_progress_is_shown_without_a_complaint(outputs: dict[str, list[nbformat.NotebookNode]]) -> None:
    assert len(outputs["group"]) >= 2
    assert not [output for cell in outputs.values() for output in cell if output.get("name") == "stderr"]
