"""
Run code in a Jupyter kernel as Jupyter does, and print what comes back as JSON; for tests, with any Python.

Usage: kernel_session.py KERNEL [STEP...]

A step is code to run, or a word: `interrupt` interrupts the code after it, `restart` restarts the kernel, `die` kills
this process; `ends` runs the code after it, which ends the kernel, and waits until Jupyter has started another one by
itself.
"""

import asyncio
import json
import sys

from jupyter_client.ioloop import AsyncIOLoopKernelManager

TIMEOUT = 60


async def run(client, code):
    """Return the text that code prints, the types of its messages, and the name of its error."""
    texts, kinds = [], []

    def keep(message):
        kinds.append(message["msg_type"])
        texts.append(message["content"].get("text") or message["content"].get("ename") or "")

    await client.execute_interactive(code, timeout=TIMEOUT, output_hook=keep)
    return "".join(texts).strip(), kinds


async def interrupt(manager):
    """Interrupt what has been running for a second."""
    await asyncio.sleep(1)
    await manager.interrupt_kernel()


async def take(steps, manager, client):
    """Take the steps."""
    restarted, before = asyncio.Event(), None
    # that Jupyter has noticed the end of a kernel, and starts another one
    manager.add_restart_callback(restarted.set)
    for step in steps:
        if step in ("interrupt", "ends"):
            before = step
        elif step == "restart":
            await manager.restart_kernel()
            await client.wait_for_ready(TIMEOUT)
        elif before == "ends":
            client.execute(step)
            await asyncio.wait_for(restarted.wait(), TIMEOUT)
            await client.wait_for_ready(TIMEOUT)
            before = None
        else:
            interruption = asyncio.ensure_future(interrupt(manager)) if before else None
            print(json.dumps(await run(client, step)), flush=True)
            if interruption:
                await interruption
            before = None


async def main():
    """Start a kernel, take the steps, and end it."""
    name, *steps = sys.argv[1:]
    manager = AsyncIOLoopKernelManager(kernel_name=name)
    await manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        await client.wait_for_ready(TIMEOUT)
        await take(steps, manager, client)
    finally:
        client.stop_channels()
        await manager.shutdown_kernel()


asyncio.run(main())
