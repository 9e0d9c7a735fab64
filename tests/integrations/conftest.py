"""RLlib pins a Gymnasium of its own, so its test runs where RLlib is: in `.venv-rllib`, by `make test-integrations`."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("tree") else ["test_rllib.py"]  # dm-tree comes with RLlib only
