"""The command line, as `hermes-orm` and as `python -m hermes_orm`."""

import sys


def main() -> None:
    """Run the command line, or tell which extra brings what it needs."""
    try:
        from hermes_orm.cli import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit(
            f"hermes-orm: {error.name} is missing; install it with: pip install 'hermes-orm[cli]'"
        )
    app(prog_name="hermes-orm")


if __name__ == "__main__":
    main()
