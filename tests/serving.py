"""A stand-in for vLLM, and a program that asks it."""

# `vllm serve`: it answers after a moment, and notes what it was told.
SERVER = """
import http.server, json, os, signal, socket, socketserver, subprocess, sys, time

folder, where = os.environ["STAND_IN"], sys.argv[-1]
print("loading", os.environ.get("SAYS", ""), flush=True)
if "FAILS" in os.environ:
    sys.exit(int(os.environ["FAILS"]))
subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
begin = time.monotonic()

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        ready = time.monotonic() > begin + float(os.environ.get("SLOW", 0.3))
        self.answer(200 if ready or self.path != "/health" else 503, self.path.encode())

    def do_POST(self):
        self.answer(200, self.rfile.read(int(self.headers["Content-Length"])).upper())

    def answer(self, status, text):
        if self.path == "/exit":
            os._exit(9)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def address_string(self):
        return "client"

if where.startswith("/"):
    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True
else:
    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
    where = ("127.0.0.1", int(where))
server = Server(where, Handler)
told = {"words": sys.argv[1:], "variables": dict(os.environ), "process": os.getpid()}
if isinstance(where, str):
    told["modes"] = [oct(os.stat(os.path.dirname(where)).st_mode & 0o777), os.listdir(os.path.dirname(where))]
with open(f"{folder}/told.json", "w") as file:
    json.dump(told, file)
server.serve_forever()
"""

# Asks the server, then does what its arguments say.
CLIENT = """
import json, os, signal, subprocess, sys, time, urllib.error, urllib.request
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))
subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]

def ask(path, key, data=None):
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(base + path, data, headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["code"]

said = {"models": ask("/models", key), "post": ask("/x", key, b"question" * 50000)[1] == "QUESTION" * 50000,
        "none": ask("/models", None), "wrong": ask("/models", key[:-1] + "x"),
        "rank": "RANK" in os.environ, "no_proxy": os.environ["no_proxy"]}
with open("said.json", "w") as file:
    json.dump(said, file)
if sys.argv[1] == "kills":
    try:
        urllib.request.urlopen(urllib.request.Request(base[:-3] + "/exit", None, {"Authorization": f"Bearer {key}"}))
    except Exception:
        sys.exit(5)
time.sleep(0 if sys.argv[1] != "waits" else 30)
sys.exit(int(sys.argv[1]))
"""
