"""ORS episodes for TRL: `ORSSpec` gives the parts that `GRPOTrainer` and its relatives take."""

from ors_gym.trl._dataset import PromptSource, SystemPrompt
from ors_gym.trl._episodes import ActionParser
from ors_gym.trl._outage import OnServerDown
from ors_gym.trl.spec import ORSSpec

OpenRewardSpec = ORSSpec
"""The name of TRL's own adapter, whose arguments mean the same here."""

__all__ = ["ActionParser", "ORSSpec", "OnServerDown", "OpenRewardSpec", "PromptSource", "SystemPrompt"]
