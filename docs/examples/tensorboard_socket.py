"""Serve TensorBoard on a Unix socket: nobody else can connect if the directory of the socket is open to you only.

TensorBoard itself can only use a port, without a password, which everybody on the machine can connect to.

Usage: python tensorboard_socket.py SOCKET --logdir DIRECTORY [OPTION OF tensorboard...]
"""

import signal
import sys

from tensorboard import program


class SocketServer(program.WerkzeugServer):
    """TensorBoard's server, which supports sockets except in its own address."""

    def get_url(self):
        """Return where the server listens (str)."""
        return self._host


def main():
    """Serve until the program is ended."""
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    path, *options = sys.argv[1:]
    board = program.TensorBoard(server_class=SocketServer)
    # fast loading is done by another program, which listens on a port
    board.configure(argv=["tensorboard", *options, "--host", f"unix://{path}", "--port=0", "--load_fast=false"])
    print(f"TensorBoard listens at {board.launch()}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
