"""The command line: `deuteron demo | inspect | compile | env`, one module a command."""

from deuteron.errors import UserError


class UsageError(UserError):
    """The command line names something that does not exist or cannot be used; exit code 2."""
