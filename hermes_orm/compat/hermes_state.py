"""The names of the module `hermes_state`; `SessionDB` takes a path, or either database's URL."""

from hermes_orm import *  # noqa: F403  (every public name, under the module's own name)
from hermes_orm import __all__ as __all__
