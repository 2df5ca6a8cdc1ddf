"""The command line: one module per group of commands."""

from hermes_orm.cli.app import app

__all__ = ["app"]
