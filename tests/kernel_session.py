"""
Run code in a Jupyter kernel as Jupyter does, and print what comes back as JSON; for tests, with any Python.

Usage: kernel_session.py KERNEL [STEP...]

A step is code to run, or a word: `interrupt` interrupts the code after it, `restart` restarts the kernel, `restart-now`
kills it first, `die` kills this process.
"""

import json
import os
import signal
import sys
import threading

from jupyter_client.manager import start_new_kernel

TIMEOUT = 60


def run(client, code):
    """Return the text that code prints, the types of its messages, and the name of its error."""
    texts, kinds = [], []

    def keep(message):
        kinds.append(message["msg_type"])
        texts.append(message["content"].get("text") or message["content"].get("ename") or "")

    client.execute_interactive(code, timeout=TIMEOUT, output_hook=keep)
    return "".join(texts).strip(), kinds


def main():
    """Run the steps."""
    name, *steps = sys.argv[1:]
    manager, client = start_new_kernel(kernel_name=name, startup_timeout=TIMEOUT)
    try:
        interrupted = False
        for step in steps:
            if step == "interrupt":
                interrupted = True
            elif step.startswith("restart"):
                manager.restart_kernel(now=step == "restart-now")
                client.wait_for_ready(TIMEOUT)
            elif step == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            else:
                if interrupted:
                    threading.Timer(1, manager.interrupt_kernel).start()
                    interrupted = False
                print(json.dumps(run(client, step)), flush=True)
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


main()
