"""Does this server speak the standard? `check_server` says, requirement by requirement."""

from ors_gym.conformance.check import acheck_server, check_server
from ors_gym.conformance.report import Report, Row, Verdict

__all__ = ["Report", "Row", "Verdict", "acheck_server", "check_server"]
