"""Text stays text in TorchRL: importing this module tells `GymWrapper` what to make of the spaces of `ors_gym.spaces`.

Needs the extra `torchrl`. A policy reads and writes them as TorchRL's non-tensor data, one value an environment.
"""

from collections.abc import Sequence
from typing import Any

from tensordict import NonTensorData, NonTensorStack, TensorDictBase, is_non_tensor
from torchrl.data import NonTensor
from torchrl.envs.libs.gym import register_gym_spec_conversion

from ors_gym.spaces import ValueSpace


class ValueSpec(NonTensor):  # type: ignore[misc] # TorchRL has no types
    """A value that is no tensor, or, for a vector environment, one of them for each environment."""

    def _encode_eager(self, val: Any, *, ignore_device: bool = False) -> TensorDictBase:
        return _stacked(val, self.shape)

    def to_numpy(self, val: Any, safe: bool | None = None) -> Any:
        """The value, or the list of them, as Gymnasium's environment wants it."""
        return val.tolist() if is_non_tensor(val) else val


@register_gym_spec_conversion(ValueSpace)  # type: ignore[untyped-decorator]
def _convert(space: ValueSpace[Any], device: Any = None, **_: Any) -> ValueSpec:
    return ValueSpec((), device=device, example_data=space.zero())


def _stacked(value: Any, shape: Sequence[int]) -> TensorDictBase:
    if not shape:
        return NonTensorData(value)
    return NonTensorStack(*(_stacked(item, shape[1:]) for item in value))
