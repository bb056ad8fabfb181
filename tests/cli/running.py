"""Run the command line inside this process."""

import contextlib
import io

import mmort.cli


def run(*arguments):
    """Return exit code, stdout and stderr of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = mmort.cli.main([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


def refused(*arguments):
    """Run a command that must fail, and return its error message, which must be one line."""
    return _refused(2 if arguments[0] == "verify" else 1, arguments)


def misused(*arguments):
    """Do what `refused` does, for arguments that exclude each other or lack another one."""
    return _refused(2, arguments)


def _refused(expected, arguments):
    code, _, err = run(*arguments)
    assert code == expected
    assert err.startswith("mmort: error: ")
    assert err.count("\n") == 1
    return err
