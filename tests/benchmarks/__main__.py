"""Runs the benchmarks of this package."""

import argparse
import importlib
import json
import pkgutil
import sys
import time
from types import ModuleType

import rich.console

import tests.benchmarks


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=tests.benchmarks.__doc__)
    parser.add_argument("--json", action="store_true", help="one machine-readable line a benchmark, instead of tables")
    parser.add_argument("--only", metavar="NAME", action="append", help="only this one; may be given several times")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: the figures mean nothing")
    arguments = parser.parse_args()
    benchmarks = discover()
    if unknown := set(arguments.only or ()) - set(benchmarks):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}; there are {', '.join(benchmarks)}")
    console = rich.console.Console()
    for name, module in benchmarks.items():
        if arguments.only and name not in arguments.only:
            continue
        begun = time.perf_counter()
        tables = module.run(arguments.quick)
        seconds = time.perf_counter() - begun
        if arguments.json:
            record = {
                "benchmark": name,
                "quick": arguments.quick,
                "seconds": seconds,
                "tables": [table.to_json() for table in tables],
            }
            sys.stdout.write(json.dumps(record) + "\n")
            sys.stdout.flush()
        else:
            for table in tables:
                console.print(table.render())
            console.print(f"{name}: {seconds:.0f} s\n", style="dim")


def discover() -> dict[str, ModuleType]:
    """The benchmarks by name, in the order of their modules' names."""
    names = sorted(module.name for module in pkgutil.iter_modules(tests.benchmarks.__path__) if not module.name.startswith("_"))
    modules = [importlib.import_module(f"tests.benchmarks.{name}") for name in names]
    return {module.NAME: module for module in modules if hasattr(module, "NAME")}


if __name__ == "__main__":
    main()
