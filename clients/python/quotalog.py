"""A client of quotalog, in one file. It needs Python 3.9 and requests; copy it, under MIT or Apache-2.0 as you choose.

    quotalog = Client("http://127.0.0.1:8200", token)
    try:
        left = quotalog.consume("alice", "api-calls")["remaining"]
    except Exhausted as spent:
        return 429, {"Retry-After": str(spent.retry_after)}
    except Outage:
        ...  # quotalog is away: go on or refuse, as you choose.

A quota is the server's own JSON object, as a dict. A call is repeated while that is safe and its deadline has not
come; whatever it may have counted already, it counts once, since all attempts bear one idempotency key. What becomes
of each answer is in docs/clients.md.
"""

import http.client
import io
import json
import math
import random
import socket
import time
import uuid
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from urllib.parse import quote, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ConnectTimeoutError, HTTPError, LocationValueError, NewConnectionError
from urllib3.util import Timeout

ATTEMPTS_MAX = 8
PAUSE_FIRST_S, PAUSE_MAX_S = 0.05, 2.0
# No wait is longer, whatever an answer says.
RETRY_AFTER_MAX_S = 2_000_000
# The problems of a request that the server would not take another time either.
NEVER_TAKEN = {
    (400, "malformed-request"),
    (413, "content-too-large"),
    (422, "validation-failed"),
    (422, "idempotency-mismatch"),
}
# Why there was no connection to send anything on.
NOT_SENT = (NewConnectionError, ConnectTimeoutError, LocationValueError)


class QuotalogError(Exception):
    """No units can be taken for granted. What is raised is one of those below."""

    def __init__(self, message, status=None, problem=None, retry_after=None):
        super().__init__(message)
        self.status = status  # of the answer, None without one
        self.problem = problem or {}  # the problem document (RFC 9457)
        self.retry_after = retry_after  # in whole seconds, None if the server did not say


class Exhausted(QuotalogError):
    """The units do not fit into what is left, and nothing was counted. After retry_after seconds they may."""

    @property
    def items(self):
        """What was asked for, in order, as {"allowed", "quota"}; of a batch also its "amount"."""
        single = {"allowed": False, "quota": self.problem}
        return self.problem.get("items") or [single]

    @property
    def quota(self):
        """The quota that did not fit; of a batch, the one that is full the longest."""
        denied = [item["quota"] for item in self.items if not item["allowed"]]
        return max(denied, key=lambda quota: quota["reset_at"])

    @property
    def remaining(self):
        return self.quota["remaining"]

    @property
    def reset_at(self):
        return self.quota["reset_at"]


class NotFound(QuotalogError):
    """No policy and no default serves the pair."""


class Denied(QuotalogError):
    """The token is none (status 401), or may not do this (403)."""


class Invalid(QuotalogError):
    """What was asked for can never be taken, or the key belongs to another request; see problem["errors"]."""


class Outage(QuotalogError):
    """The server cannot be asked for now, and nothing was counted."""


class OutcomeUnknown(Outage):
    """The server cannot be asked for now, or made a mistake (status 500), and the units may have been counted."""


class Unexpected(QuotalogError):
    """An answer that is none of quotalog's, as from a wrong URL."""


class Client:
    """A server, and the token to ask it with; one for each thread. The deadline of a call is in seconds, and bounds all
    but the look-up of the server's name."""

    def __init__(self, url, token, *, deadline=10.0, attempt_timeout=6.0):
        if not _is_base(url):
            raise Invalid("The URL must be one of http or https, with a host, and without a user, a query or a fragment.")
        # Without the token: it is a secret, and may be all but right.
        if not _is_visible(token):
            raise Invalid("The token must be visible ASCII characters, without a blank or the end of a line.")
        self._url = url.rstrip("/")
        self._deadline, self._attempt_timeout = deadline, attempt_timeout
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _Adapter())
        # Not the session's headers alone: a ~/.netrc would come before those.
        self._session.auth = lambda request: _with_token(request, token)

    def check(self, user_id, resource):
        """The quota as it is; counts nothing."""
        return self._call("GET", _path("quotas", user_id, resource), "remaining")

    def consume(self, user_id, resource, amount=1, *, key=None, wait=False):
        """Counts the units, all or none. The key is one of the caller's, if it may ask again itself. With wait, a 429
        is waited for and asked again, as long as the deadline allows."""
        path = _path("quotas", user_id, resource, "consume")
        return self._call("POST", path, "remaining", {"amount": amount}, key, wait)

    def refund(self, user_id, resource, amount=1, *, key=None):
        """Gives units of the present window back."""
        return self._call("POST", _path("quotas", user_id, resource, "refund"), "remaining", {"amount": amount}, key)

    def batch(self, items, *, key=None, wait=False):
        """Counts several pairs, all or none: {"user_id", "resource", "amount"} each. Returns their quotas, in order."""
        return self._call("POST", "/consume", "quotas", {"items": list(items)}, key, wait)["quotas"]

    def _call(self, method, path, member, body=None, key=None, wait=False):
        """The answer, which has such a member."""
        headers = {}
        if body is not None:
            body = _json(body)
            headers["Content-Type"] = "application/json"
            headers["Idempotency-Key"] = _key(key) if key is not None else uuid.uuid4().hex
        until, pause_s, may_have_counted = time.monotonic() + self._deadline, PAUSE_FIRST_S, False
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return self._attempt(method, path, member, body, headers, until - time.monotonic())
            except (Exhausted, NotFound, Invalid) as decided:
                # The server has looked for an answer under the key: no attempt before has counted.
                if not (wait and isinstance(decided, Exhausted)):
                    raise
                failure, may_have_counted = decided, False
            except Outage as outage:
                failure = outage
                may_have_counted |= isinstance(outage, OutcomeUnknown)
                # A mistake of the server's would meet the same question again. A change may have been counted before it.
                attempt = ATTEMPTS_MAX if outage.status == 500 and method == "GET" else attempt
            except QuotalogError as error:
                if may_have_counted:
                    raise _unknown(error) from error
                raise
            # By chance, so that many clients do not come back at once; and never before the server wants them.
            pause = (failure.retry_after or 0) + pause_s * random.uniform(0.5, 1)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)
            if attempt == ATTEMPTS_MAX or pause >= until - time.monotonic():
                raise _unknown(failure) if may_have_counted else failure
            time.sleep(pause)

    def _attempt(self, method, path, member, body, headers, left):
        timeout = Timeout(total=max(min(self._attempt_timeout, left), 0.001))
        try:
            answer = self._session.request(
                method, self._url + path, data=body, headers=headers, timeout=timeout, allow_redirects=False
            )
        # Of a host that cannot be, requests hands on what urllib3 says.
        except (requests.RequestException, HTTPError) as error:
            reason = getattr(error.args[0], "reason", None) if error.args else None
            was_sent = not (isinstance(error, NOT_SENT) or isinstance(reason, NOT_SENT))
            raise (OutcomeUnknown if was_sent and method != "GET" else Outage)(str(error)) from error
        try:
            document = json.loads(answer.content)
        # The other one if it is too deep.
        except (ValueError, RecursionError):
            document = None
        document = document if isinstance(document, dict) else {}
        if answer.status_code == 200 and member in document:
            return document
        raise _error(answer, document, method != "GET")


class _Adapter(HTTPAdapter):
    """What sends requests, and bounds their answers."""

    def init_poolmanager(self, *args, **options):
        super().init_poolmanager(*args, **options)
        _bound(self.poolmanager)

    def proxy_manager_for(self, proxy, **options):
        is_new = proxy not in self.proxy_manager
        manager = super().proxy_manager_for(proxy, **options)
        if is_new:
            _bound(manager)
        return manager


def _bound(manager):
    """Has the connections of a manager read answers as below."""
    pools = {}
    for scheme, kind in manager.pool_classes_by_scheme.items():
        connection = type(kind.ConnectionCls.__name__, (kind.ConnectionCls,), {"response_class": _Response})
        # Its name is in the texts of errors.
        pools[scheme] = type(kind.__name__, (kind,), {"ConnectionCls": connection})
    manager.pool_classes_by_scheme = pools


class _Response(http.client.HTTPResponse):
    """An answer whose timeout is one for the whole of it, and not for each read."""

    def __init__(self, sock, *args, **options):
        super().__init__(sock, *args, **options)
        self.fp = io.BufferedReader(_Reader(self.fp.detach(), sock))


class _Reader(io.RawIOBase):
    def __init__(self, raw, sock):
        super().__init__()
        self._raw, self._sock, self._until = raw, sock, time.monotonic() + sock.gettimeout()

    def readable(self):
        return True

    def readinto(self, buffer):
        left = self._until - time.monotonic()
        if left <= 0:
            raise socket.timeout("The answer took too long.")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self):
        self._raw.close()
        super().close()


def _error(answer, problem, changes):
    """What an answer that is no success means."""
    status, name = answer.status_code, str(problem.get("type", "")).replace("#", "/").rsplit("/", 1)[-1]
    items = problem.get("items")
    tells = "remaining" in problem or isinstance(items, list) and items
    if status == 429 and name == "quota-exceeded" and tells:
        kind = Exhausted
    elif status == 404 and name == "not-found":
        kind = NotFound
    elif status in (401, 403):
        kind = Denied
    elif (status, name) in NEVER_TAKEN:
        kind = Invalid
    elif (status, name) == (503, "unavailable"):
        kind = Outage
    elif 500 <= status < 600:
        # The server's own word, or that of a proxy, who does not know what became of the request behind it.
        kind = OutcomeUnknown if changes else Outage
    else:
        kind = Unexpected
    said = problem.get("detail") or f"the answer was {status} and no problem document"
    return kind(said, status, problem, _retry_after(answer.headers.get("Retry-After", "")))


def _retry_after(value):
    """In whole seconds, as quotalog says it, or until an instant, as a proxy may (RFC 9110 section 10.2.3)."""
    if value.isascii() and value.isdigit():
        # Python reads no number of thousands of digits.
        return min(int(value), RETRY_AFTER_MAX_S) if len(value) < 10 else RETRY_AFTER_MAX_S
    try:
        instant = parsedate_to_datetime(value)
    except (TypeError, ValueError, OverflowError):
        return None
    # A date of no zone, "-0000", is one of UTC.
    seconds = (instant.replace(tzinfo=instant.tzinfo or timezone.utc) - datetime.now(timezone.utc)).total_seconds()
    return max(0, min(math.ceil(seconds), RETRY_AFTER_MAX_S))


def _unknown(error):
    """What is raised in place of an error, once an earlier attempt may have counted."""
    return OutcomeUnknown(str(error), error.status, error.problem, error.retry_after)


def _with_token(request, token):
    request.headers["Authorization"] = f"Bearer {token}"
    return request


def _is_base(url):
    """Whether a path can be added to a URL."""
    try:
        split = urlsplit(url)
        is_fit = split.scheme in ("http", "https") and split.hostname and split.port != 0
        # Nor is all a URL that urlsplit takes apart.
        requests.Request("GET", url).prepare()
        return is_fit and not any(character in "@?#\\" or character <= " " for character in url)
    except ValueError:
        return False


def _json(body):
    # As UTF-8, since the server bounds the bytes, and escapes are twice as long.
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except ValueError as error:
        raise Invalid("What has no form in JSON, or is no text, cannot be asked for.") from error


def _is_visible(text):
    return bool(text) and all("!" <= character <= "~" for character in text)


def _key(key):
    # A blank at an end would be lost on the way, and the key be another one.
    if not (_is_visible(key) and len(key) <= 255):
        raise Invalid("Idempotency-Key must be 1 to 255 visible ASCII characters.")
    return key


def _path(*names):
    # These would lead to another place once somebody has tidied the path up.
    for name in names:
        # Half a character of UTF-16 has no encoding either.
        if name in ("", ".", "..") or "/" in name or any("\ud800" <= character <= "\udfff" for character in name):
            raise Invalid(f'{name!r} must be a name other than "." and "..", without a "/".')
    return "".join("/" + quote(name, safe="") for name in names)
