from collections.abc import Sequence
from typing import Any, NamedTuple

# the rest of the module
def __getattr__(name: str) -> Any: ...

class RunShellCmdResult(NamedTuple):
    cmd: str
    exit_code: int
    output: str
    stderr: str | None
    work_dir: str
    out_file: str | None
    err_file: str | None
    cmd_sh: str | None
    thread_id: int | None
    task_id: str | None

class RunShellCmdError(Exception):
    exit_code: int
    output: str
    stderr: str | None

    def __init__(self, cmd_result: RunShellCmdResult, caller_info: Any, *args: Any, **kwargs: Any) -> None: ...

# the easyblocks say which types the options have (container/runtime.py)
def run_shell_cmd(
        cmd: str | Sequence[str], fail_on_error: Any = True, split_stderr: Any = False, stdin: Any = None,
        env: Any = None, hidden: Any = False, in_dry_run: Any = False, verbose_dry_run: Any = False,
        work_dir: Any = None, use_bash: Any = True, output_file: Any = True, stream_output: Any = None,
        asynchronous: Any = False, task_id: Any = None, with_hooks: Any = True, qa_patterns: Any = None,
        qa_wait_patterns: Any = None, qa_timeout: Any = 100,
        log_output_on_success: Any = True) -> RunShellCmdResult: ...
