"""What it costs: `python -m tests.benchmarks [--json] [--only NAME] [--quick]`, or `make bench`.

Each module here with a `NAME` and a `def run(quick: bool) -> list[Table]` is a benchmark. Ratios are measured in one run, the
sides in turn, and are medians; `--quick` only shows that it works.
"""
