"""A session with `partune mcp` as a client of the protocol leads it: real lines, a real daemon."""
import json
import queue
import subprocess
import sys
import threading
import time

from tap import finish, ok

PARTUNE = sys.argv[1]
META = "io.modelcontextprotocol/"
JOB = {"model": "gpt-1.4B", "cluster": {"profile": "dgx-a100", "nodes": 1}, "workload": {"global_batch": 16},
       "trainer": "megatron"}
CAMPAIGN = {**JOB, "name": "by tool", "launcher": {"kind": "simulated", "speed": 100000}, "budget": {"trials": 4},
            "space": {"micro_batch": [1, 2], "pp": [1, 2], "recompute": ["none"]}}


class Session:
    def __init__(self, *options):
        self.process = subprocess.Popen([PARTUNE, "mcp", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1)
        self.lines = queue.Queue()
        self.last = 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(json.loads(line))

    def send(self, text):
        self.process.stdin.write(text + "\n")

    def next(self, seconds=30):
        return self.lines.get(timeout=seconds)

    def post(self, method, params=None, modern=False):
        self.last += 1
        params = dict(params or {})
        if modern:
            params["_meta"] = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {},
                               META + "clientInfo": {"name": "test", "version": "1"}}
        self.send(json.dumps({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}))
        return self.last

    def ask(self, method, params=None, modern=False):
        asked = self.post(method, params, modern)
        answer = self.next()
        assert answer["id"] == asked and answer["jsonrpc"] == "2.0", answer
        return answer

    def call(self, tool, arguments=None, modern=False):
        return self.ask("tools/call", {"name": tool, "arguments": arguments or {}}, modern)

    def text(self, tool, arguments=None):
        result = self.call(tool, arguments)["result"]
        return result["isError"], result["content"][0]["text"]

    def close(self):
        self.process.stdin.close()
        return self.process.wait(30)


def code(answer):
    return answer.get("error", {}).get("code")


def references(schema):
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref":
                yield value
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def handshake(session):
    return session.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {},
                                      "clientInfo": {"name": "test", "version": "1"}})


# ---- an earlier revision: initialize first ------------------------------------
s = Session()
ok("tools need an initialize, or _meta", code(s.ask("tools/list")) == -32602)
ok("a ping is answered before", s.ask("ping")["result"] == {})
hello = handshake(s)["result"]
ok("the asked revision is spoken", hello["protocolVersion"] == "2025-06-18", hello)
ok("tools are offered", "tools" in hello["capabilities"] and hello["serverInfo"]["name"] == "partune", hello)
s.send('{"jsonrpc": "2.0", "method": "notifications/initialized"}')
ok("an unknown revision gets the newest with a handshake",
   s.ask("initialize", {"protocolVersion": "1999-01-01"})["result"]["protocolVersion"] == "2025-11-25")
tools = {tool["name"]: tool for tool in s.ask("tools/list")["result"]["tools"]}
ok("the tools that read", set(tools) == {"plan", "size", "check", "validate", "explain", "campaigns", "status", "best", "why", "export"},
   list(tools))
ok("are said to do so", all(tool["annotations"]["readOnlyHint"] for tool in tools.values()))
ok("every reference of a schema is in it", all(
    ref.startswith("#/$defs/") and ref[8:] in schema.get("$defs", {})
    for tool in tools.values() for schema in (tool["inputSchema"], tool.get("outputSchema", {})) for ref in references(schema)))
ok("arguments are those of the API: body", {"model", "workload", "layout"} <= set(tools["check"]["inputSchema"]["required"]))
ok("path and query", set(tools["export"]["inputSchema"]["properties"]) ==
   {"id", "target", "allow_loss", "allow_simulated", "explain", "trial"}, tools["export"]["inputSchema"])
try:
    import jsonschema
    for tool in tools.values():
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        jsonschema.Draft202012Validator.check_schema(tool.get("outputSchema", {}))
except ImportError:
    jsonschema = None


def valid(tool, answer):
    schema = tools[tool].get("outputSchema")
    if jsonschema and schema:
        jsonschema.Draft202012Validator(schema).validate(answer["result"]["structuredContent"])
    return not answer["result"]["isError"]


# ---- what may go wrong --------------------------------------------------------
s.send("{nonsense")
bad = s.next()
ok("no JSON is a parse error", code(bad) == -32700 and bad["id"] is None, bad)
s.send("[]")
ok("a batch is refused", code(s.next()) == -32600)
s.send('{"jsonrpc": "1.0", "id": 70, "method": "ping"}')
ok("so is another version of JSON-RPC", code(s.next()) == -32600)
s.send('{"jsonrpc": "2.0", "id": null, "method": "ping"}')
ok("and an id that is none", code(s.next()) == -32600)
s.send('{"jsonrpc": "2.0", "id": 71, "method": "ping", "params": [1]}')
ok("parameters are an object", code(s.next()) == -32602)
ok("an unknown method", code(s.ask("resources/list")) == -32601)
ok("an unknown tool", code(s.call("destroy")) == -32602)
ok("a tool without a name", code(s.ask("tools/call", {})) == -32602)
ok("arguments that are a list", code(s.ask("tools/call", {"name": "plan", "arguments": []})) == -32602)
refused = s.call("submit", CAMPAIGN)
ok("submit is not offered", code(refused) == -32602 and "--allow-submit" in refused["error"]["message"], refused)
ok("a missing argument is named", s.text("status") == (True, "id is missing, or not a string"))
ok("so is an unknown one", s.text("plan", {**JOB, "modle": 1}) == (True, 'unknown argument "modle" of plan'))
wrong, text = s.text("plan", {**JOB, "workload": {"global_batch": -1}})
ok("a refusal names its field", wrong and "/workload/global_batch" in text, text)
ok("an unknown campaign", s.text("status", {"id": "zzzzzzzz"})[0])
ok("an id cannot leave its place in the path", s.text("status", {"id": "../../tokens"})[0])
ok("last of no campaign", s.text("best", {"id": "last"}) == (True, "there is no campaign yet"))
s.send("x" * (5 << 20))
ok("a message that is too long", code(s.next()) == -32600)
ok("what follows it is read", s.ask("ping")["result"] == {})

# ---- what they are for --------------------------------------------------------
plan = s.call("plan", {**JOB, "top": 3})
size = s.call("size", {**JOB, "devices": [8], "tokens": 1e9})
ok("size compares", valid("size", size) and size["result"]["structuredContent"]["items"][0]["days"] > 0, size)
ok("plan ranks layouts", valid("plan", plan) and len(plan["result"]["structuredContent"]["items"]) == 3, plan)
check = s.call("check", {**JOB, "layout": {"tp": 5}})
broken = [rule["rule"] for rule in check["result"]["structuredContent"]["rules"]]
ok("check names the rules that are broken", valid("check", check) and "heads-tp" in broken, check)
for rule in broken:
    wrong, text = s.text("explain", {"rule": rule})
    ok(f"explain {rule}", not wrong and text.startswith(rule + ": "), text)
ok("an unknown rule offers the nearest", "heads-tp" in s.text("explain", {"rule": "head-tp"})[1])
wrong, text = s.text("validate", CAMPAIGN)
ok("validate starts nothing", not wrong and json.loads(text)["legal"] > 0 and
   json.loads(s.text("campaigns")[1])["total"] == 0, text)

# Two plans at once, one of them cancelled: pings continue, and only the other is answered.
first = s.post("tools/call", {"name": "plan", "arguments": {**JOB, "top": 1000, "fold": False}})
second = s.post("tools/call", {"name": "plan", "arguments": JOB})
s.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": first}}))
s.send('{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 999999}}')
ping = s.post("ping")
answers = [s.next(), s.next()]
ok("a cancelled call is not answered, the others are", sorted(a["id"] for a in answers) == [second, ping], answers)
s.send('{"jsonrpc": "2.0", "id": "word", "method": "ping"}')
ok("an id may be a word", s.next()["id"] == "word")
ok("the end of the input ends it", s.close() == 0)

# ---- the current revision: no handshake ---------------------------------------
s = Session("--allow-submit")
found = s.ask("server/discover", modern=True)["result"]
ok("discover lists the revisions", found["supportedVersions"][0] == "2026-07-28" and found["resultType"] == "complete", found)
s.last += 1
s.send(json.dumps({"jsonrpc": "2.0", "id": s.last, "method": "tools/list", "params": {
    "_meta": {META + "protocolVersion": "2031-01-01", META + "clientCapabilities": {}}}}))
other = s.next()
ok("another revision is refused with those", code(other) == -32022 and "2026-07-28" in other["error"]["data"]["supported"], other)
s.send(json.dumps({"jsonrpc": "2.0", "id": 900, "method": "tools/list", "params": {
    "_meta": {META + "protocolVersion": "2026-07-28"}}}))
ok("without capabilities, too", code(s.next()) == -32602)
listed = s.ask("tools/list", modern=True)["result"]
ok("a list may be kept", listed["ttlMs"] > 0 and listed["cacheScope"] == "public" and
   listed["_meta"][META + "serverInfo"]["name"] == "partune", listed)
submit = next(tool for tool in listed["tools"] if tool["name"] == "submit")
ok("submit is offered, and is said to write", not submit["annotations"]["readOnlyHint"])
ok("ping has left the protocol", code(s.ask("ping", modern=True)) == -32601)
made = s.call("submit", CAMPAIGN, modern=True)["result"]
ok("submit starts a campaign", not made["isError"] and made["resultType"] == "complete", made)
campaign = made["structuredContent"]["id"]
for _ in range(300):
    status = s.call("status", {"id": campaign}, modern=True)
    if status["result"]["structuredContent"]["state"] == "done":
        break
    time.sleep(0.2)
ok("status follows it to its end", valid("status", status) and status["result"]["structuredContent"]["simulated"], status)
best = s.call("best", {"id": "last"}, modern=True)
ok("best is its best", valid("best", best) and
   best["result"]["structuredContent"]["trial"] == status["result"]["structuredContent"]["best"]["trial"], best)
ok("campaigns has it", valid("campaigns", s.call("campaigns", {"page_size": 5}, modern=True)))
wrong = s.call("export", {"id": campaign, "target": "megatron"}, modern=True)["result"]
ok("an export of a simulation is refused", wrong["isError"] and "simulated" in wrong["content"][0]["text"], wrong)
text = s.call("export", {"id": campaign, "target": "megatron", "allow_simulated": True, "allow_loss": True}, modern=True)["result"]
ok("and written on demand", not text["isError"] and "tensor-model-parallel" in text["content"][0]["text"], text)
s.post("tools/call", {"name": "plan", "arguments": JOB}, modern=True)
s.process.stdin.close()
ok("a call under way at the end is answered", not s.next()["result"]["isError"])
ok("and then it ends", s.process.wait(30) == 0)

# ---- without a daemon ---------------------------------------------------------
s = Session("--server", "http://127.0.0.1:9")
handshake(s)
ok("tools are listed without a daemon", len(s.ask("tools/list")["result"]["tools"]) == len(tools))
wrong, text = s.text("campaigns")
ok("which a call misses", wrong and "no daemon answers at http://127.0.0.1:9" in text, text)
s.close()
finish()
