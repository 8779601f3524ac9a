"""Makes the calls that standard input names, one JSON object a line, and prints what became of each."""

import json
import sys
import traceback

import quotalog

url, token, deadline_s = sys.argv[1:]
client = None
for line in sys.stdin:
    call = json.loads(line)
    try:
        client = client or quotalog.Client(url, token, deadline=float(deadline_s))
        outcome = {"answer": getattr(client, call["call"])(*call["arguments"], **call["options"])}
    except quotalog.QuotalogError as error:
        # All that a log may show, causes included.
        shown = traceback.format_exc()
        assert not any(part in shown for part in token.split()), "the token is in an error"
        outcome = {"error": type(error).__name__, "status": error.status, "retry_after": error.retry_after}
        if isinstance(error, quotalog.Exhausted):
            outcome["allowed"] = [item["allowed"] for item in error.items]
            outcome["resource"] = error.quota["resource"]
            outcome["remaining"], outcome["reset_at"] = error.remaining, error.reset_at
    print(json.dumps(outcome), flush=True)
