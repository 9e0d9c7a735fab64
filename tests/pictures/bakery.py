"""An environment whose episodes are worth a look: a word problem with a drawing, a calculator that can fail, and an answer."""

import ast
import base64
import io
import operator

from ors import Environment, ImageBlock, Split, TextBlock, ToolOutput, tool
from PIL import Image, ImageDraw
from pydantic import BaseModel, Field

_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


class Expression(BaseModel):
    """The input of `calculate`."""

    expression: str = Field(description="Numbers with + - * / and parentheses.")


class Answer(BaseModel):
    """The input of `submit`."""

    answer: int = Field(description="How many rolls are left.")


class Bakery(Environment):
    """Rolls on trays, some of which are sold. The prompt says how many; the drawing shows one tray."""

    @classmethod
    def name(cls) -> str:
        return "bakery"

    @classmethod
    def list_splits(cls) -> list[Split]:
        return [Split(name="train", type="train"), Split(name="test", type="test")]

    @classmethod
    def list_tasks(cls, split: str) -> list[dict[str, int]]:
        shift = {"train": 0, "test": 5}[split]
        count = {"train": 24, "test": 8}[split]
        return [
            {"trays": 3 + (7 * n + shift) % 8, "rows": 2 + n % 4, "columns": 3 + (3 * n + shift) % 6, "parts": 2 + n % 3}
            for n in range(count)
        ]

    def get_prompt(self) -> list[TextBlock | ImageBlock]:
        trays, parts = self.task_spec["trays"], self.task_spec["parts"]
        sold = {2: "half", 3: "a third", 4: "a quarter"}[parts]
        text = (
            f"A baker takes {trays} trays of rolls out of the oven, each like the one in the picture, and sells {sold} of all "
            "rolls before noon.\n\nHow many rolls are left? Round down. Submit a whole number; the calculator is at your service."
        )
        return [TextBlock(text=text), ImageBlock(data=self._tray(), mimeType="image/png")]

    @tool
    def calculate(self, params: Expression) -> ToolOutput:
        """Evaluate an arithmetic expression."""
        return ToolOutput(blocks=[TextBlock(text=f"{_value(ast.parse(params.expression, mode='eval').body):g}")])

    @tool
    def submit(self, params: Answer) -> ToolOutput:
        """Submit the answer. This ends the episode."""
        total = self.task_spec["trays"] * self.task_spec["rows"] * self.task_spec["columns"]
        left = total - total // self.task_spec["parts"]
        if params.answer == left:
            return ToolOutput(blocks=[TextBlock(text="Correct.")], reward=1.0, finished=True)
        close = abs(params.answer - left) <= 1
        verdict = "Close, but a rounding error away." if close else f"Wrong: of {total} rolls, {left} are left."
        return ToolOutput(
            blocks=[TextBlock(text=verdict)], reward=0.5 if close else 0.0, finished=True, metadata={"expected": left}
        )

    def _tray(self) -> str:
        rows, columns = self.task_spec["rows"], self.task_spec["columns"]
        picture = Image.new("RGB", (56 * columns + 24, 56 * rows + 24), "#c9ced6")
        draw = ImageDraw.Draw(picture)
        draw.rounded_rectangle((6, 6, picture.width - 7, picture.height - 7), 10, fill="#e7eaef")
        for row in range(rows):
            for column in range(columns):
                left, top = 20 + 56 * column, 20 + 56 * row
                draw.ellipse((left, top, left + 40, top + 40), fill="#c98b4b", outline="#9a6330", width=2)
                draw.arc((left + 9, top + 10, left + 31, top + 34), 200, 340, fill="#9a6330", width=2)
        packed = io.BytesIO()
        picture.save(packed, "PNG")
        return base64.b64encode(packed.getvalue()).decode()


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left), _value(right))
    raise ValueError("only numbers with + - * / and parentheses")
