"""The section `database.postgres` of `config.yaml`, validated strictly and with our error texts."""

from typing import Annotated, Any, Final, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, with_config
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict  # pydantic needs it before Python 3.12

from hermes_orm.location import Driver, parse_options

READ_ONLY: Final = "default_transaction_read_only"
SCHEMA_NAME: Final = r"^[a-z_][a-z0-9_$]{0,62}$"

_STRICT: Final = ConfigDict(
    extra="forbid", strict=True, frozen=True, allow_inf_nan=False, hide_input_in_errors=True
)
_RULES: Final = {
    "int_type": "must be an integer",
    "float_type": "must be a number",
    "bool_type": "must be a boolean",
    "string_type": "must be a string",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "finite_number": "must be finite",
    "greater_than": "must be > {gt:g}",
    "greater_than_equal": "must be >= {ge:g}",
    "string_pattern_mismatch": "must be a plain schema name: lower-case letters, digits and _",
    "value_error": "{error}",
}

Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0)]


def _unreserved(settings: dict[str, str]) -> dict[str, str]:
    if any(name.lower() == READ_ONLY for name in settings):
        raise ValueError(f"must not set {READ_ONLY}: it is reserved, controlled by read_only")
    return settings


def _options(text: str) -> str:
    _unreserved(parse_options(text))
    return text


@with_config(_STRICT)
class AsyncpgArguments(TypedDict, total=False):
    """`connect_args` with asyncpg."""

    timeout: Seconds
    command_timeout: Annotated[float, Field(gt=0)] | None
    statement_cache_size: Count
    max_cached_statement_lifetime: Seconds
    max_cacheable_statement_size: Count
    server_settings: Annotated[dict[str, str], AfterValidator(_unreserved)]


@with_config(_STRICT)
class PsycopgArguments(TypedDict, total=False):
    """`connect_args` with psycopg; `prepare_threshold: null` means "never prepare"."""

    connect_timeout: Annotated[int, Field(ge=1)]
    prepare_threshold: Count | None
    application_name: str
    options: Annotated[str, AfterValidator(_options)]


A = TypeVar("A")


class PostgresSettings(BaseModel, Generic[A]):
    """Pool, connection and ownership settings of a PostgreSQL store."""

    model_config = _STRICT

    pool_size: Count = 5
    max_overflow: Annotated[int, Field(ge=-1)] = 10
    pool_timeout: Seconds = 30.0
    pool_recycle: Annotated[float, Field(ge=-1)] = -1
    pool_pre_ping: bool = True
    pool_use_lifo: bool = False
    connect_args: A | None = None
    schema_name: Annotated[str | None, Field(alias="schema", pattern=SCHEMA_NAME)] = None
    pooler: bool = False
    profile: str | None = None


def read_settings(section: object, driver: Driver) -> PostgresSettings[Any]:
    """Return the settings of `section`; None means defaults, anything invalid is a ValueError."""
    models: dict[Driver, type[PostgresSettings[Any]]] = {
        "asyncpg": PostgresSettings[AsyncpgArguments],
        "psycopg": PostgresSettings[PsycopgArguments],
    }
    try:
        return models[driver].model_validate({} if section is None else section)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
    # Raised out here, because pydantic's own error would show the values.
    raise ValueError(_text(problems))


def _text(problems: list[ErrorDetails]) -> str:
    first = problems[0]
    path = ("database.postgres", *first["loc"])
    if first["type"] in ("extra_forbidden", "invalid_key"):
        unknown = sorted(
            str(problem["loc"][-1])
            for problem in problems
            if problem["type"] == first["type"] and problem["loc"][:-1] == first["loc"][:-1]
        )
        return f"{_dotted(path[:-1])} contains unsupported key(s): {', '.join(unknown)}"
    rule = _RULES.get(first["type"], "is invalid")
    return f"{_dotted(path)} {rule.format(**first.get('ctx', {}))}"


def _dotted(path: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in path)
