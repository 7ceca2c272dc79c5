"""Python runs this at the start of every interpreter of a job that dltune launched.

Only the standard library is used. An error here must not stop the job: it is printed, and dltune
notices that the job does not report.
"""

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _run_shadowed() -> None:
    """Run the sitecustomize that ours hides, if the environment has one."""
    import importlib.machinery

    paths = [p for p in sys.path if os.path.abspath(p or ".") != _FOLDER]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        module = type(sys)("sitecustomize")
        module.__spec__ = spec
        module.__file__ = spec.origin
        spec.loader.exec_module(module)


def _start() -> None:
    if not os.environ.get("DLTUNE_SOCKET") or os.environ.get("DLTUNE_DISABLE") == "1":
        return
    sys.path.append(_FOLDER)
    try:
        import _dltune_attach

        _dltune_attach.start(os.environ["DLTUNE_SOCKET"])
    finally:
        sys.path.remove(_FOLDER)


try:
    _start()
except Exception as error:
    print(f"dltune: could not attach to this Python: {error!r}", file=sys.stderr)
_run_shadowed()
