"""The command line: `ors-gym demo | info | play | eval | serve | check | view`. One module a command."""

from ors_gym.cli._signals import App
from ors_gym.cli.check import check
from ors_gym.cli.demo import demo
from ors_gym.cli.eval import eval_
from ors_gym.cli.info import info
from ors_gym.cli.play import play
from ors_gym.cli.serve import serve
from ors_gym.cli.view import view

app = App(
    name="ors-gym",
    help="Open Reward Standard environments in Gymnasium, GRPO and evaluation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(info)
app.command("eval")(eval_)
app.command()(play)
app.command()(serve)
app.command()(check)
app.command()(view)
