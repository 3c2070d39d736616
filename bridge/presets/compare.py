"""What ``kakeya run PRESET --against REF`` measures: a preset's ``compare`` section."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from bridge.presets.params import PresetPart
from bridge.reports.own.model import Unit
from bridge.reports.own.pointer import Pointer
from bridge.reports.parts import LEAST_ROUNDS, MOST_ROUNDS


class Compare(PresetPart):
    """The preset's last step is measured in both trees, in turn. The steps before it prepare each tree once."""

    # The last step's wall time, the processor time of all of its processes, or a number in a JSON line that it prints.
    measure: Literal["wall", "processor", "printed"]
    # A JSON pointer to the number in the last line of the step's output that is a JSON object.
    pointer: Pointer | None = None
    unit: Unit = "s"
    better: Literal["lower", "higher"] = "lower"
    # In each round, each of the three arms runs twice.
    rounds: Annotated[int, Field(ge=LEAST_ROUNDS, le=MOST_ROUNDS)] = 10

    @model_validator(mode="after")
    def _number_is_named(self) -> "Compare":
        of_number = ("pointer", "unit", "better")
        if self.measure == "printed":
            if missing := [name for name in of_number if name not in self.model_fields_set]:
                raise ValueError(f"needs `{missing[0]}` if measure is 'printed'")
        elif written := [name for name in of_number if name in self.model_fields_set]:
            raise ValueError(
                f"takes `{written[0]}` only if measure is 'printed': times are in s, lower is better"
            )
        return self
