"""The `remix` command, the last room: one file per sub-command, with its arguments and all that it prints."""

from remix.cli.entry import COMMANDS, main

__all__ = ["COMMANDS", "main"]
