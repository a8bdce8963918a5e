"""What every table of a job file has in common."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """One table of a job file: frozen, no unknown keys, no type conversions, finite numbers only."""

    # Validators are built when first used: workers get jobs that are checked already, and start the sooner.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)
