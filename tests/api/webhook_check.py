"""Judge what receiver.py wrote: SECRET, FILE. Prints a line for each request: event, delivery's number
in order of appearance, answer, state of the campaign, number of the trial, signature."""
import hashlib
import hmac
import json
import sys
import time

secret, seen = sys.argv[1].encode(), {}
for line in open(sys.argv[2]):
    r = json.loads(line)
    head, body = r["head"], json.loads(r["body"])
    text = (head["partune-timestamp"] + "." + r["body"]).encode()
    good = "sha256=" + hmac.new(secret, text, hashlib.sha256).hexdigest() == head["partune-signature"]
    fresh = abs(time.time() - int(head["partune-timestamp"])) < 300
    same = body["id"] == head["partune-delivery"] and body["event"] == head["partune-event"]
    again = seen.setdefault(body["id"], (len(seen) + 1, r["body"]))
    print(r["path"], body["event"], again[0], r["answer"], body["campaign"]["state"],
          body["trial"] and body["trial"]["n"],
          "signed" if good and fresh and same and again[1] == r["body"] else "WRONG")
