"""What a search in a race has to do: answer JSON lines (docs/howto/race.md).

serve(search) reads the two files that the race names and calls

    search.ask()            the next layout, an object; None: it is done
    search.tell(layout, v)  v: tokens per second; 0: out of memory; None: not in the list
"""
import argparse
import json
import sys


def files():
    """The campaign, an object, and the layouts, objects that every trial is one of."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layouts", required=True)
    parser.add_argument("campaign")
    args = parser.parse_args()
    with open(args.campaign, encoding="utf-8") as file:
        campaign = json.load(file)
    with open(args.layouts, encoding="utf-8") as file:
        layouts = [json.loads(line) for line in file if line.strip()]
    return campaign, layouts


def value(request):
    if request["status"] == "ok":
        return request["tokens_per_s"]
    return 0.0 if request["status"] == "oom" else None


def serve(search):
    asked = {}
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "ask":
            layout = search.ask()
            answer = {"op": "done", "reason": "exhausted"}
            if layout is not None:
                number = len(asked) + 1
                asked[number] = layout
                answer = {"op": "trial", "id": number, "layout": layout}
        else:
            search.tell(asked[request["id"]], value(request))
            answer = {"op": "ok"}
        print(json.dumps(answer), flush=True)
