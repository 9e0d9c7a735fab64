"""`python -m ors_gym.cli`."""

from ors_gym.cli import app

app()
