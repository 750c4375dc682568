"""A receiver of webhooks: writes each request as a line of JSON to FILE, and answers by PLAN, one
status a request, the last one for ever. Its port goes to FILE.port."""
import http.server
import json
import sys

out, plan = sys.argv[1], [int(s) for s in sys.argv[2].split(",")]


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        status = plan.pop(0) if len(plan) > 1 else plan[0]
        with open(out, "a") as f:
            head = {k.lower(): v for k, v in self.headers.items()}
            f.write(json.dumps({"path": self.path, "head": head, "body": body, "answer": status}) + "\n")
        self.send_response(status)
        if status // 100 == 3:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
with open(out + ".port", "w") as f:
    f.write(str(server.server_address[1]))
server.serve_forever()
