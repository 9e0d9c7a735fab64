"""JSON Schema at work: validate values, sample them, enumerate them, and ask a person for them.

A server's schemas are not trusted: nothing is fetched, and none of them makes a call here hang, or take memory without end.
"""

from ors_gym.schemas._enumeration import enumerate_values
from ors_gym.schemas._parameters import Parameter, parameters, read_text
from ors_gym.schemas._sampling import Sampler, sample
from ors_gym.schemas._strings import draw_text
from ors_gym.schemas._validation import SafeValidator, Schema, SchemaError, validate, validator_for

__all__ = [
    "Parameter",
    "SafeValidator",
    "Sampler",
    "Schema",
    "SchemaError",
    "draw_text",
    "enumerate_values",
    "parameters",
    "read_text",
    "sample",
    "validate",
    "validator_for",
]
