"""The pictures of the README: `make pictures`. They show a real run, on an environment made for it."""
