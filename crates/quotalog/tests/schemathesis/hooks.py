"""What JSON Schema allows and quotalog does not: 1.0 as an integer. No such number is sent."""

import schemathesis


@schemathesis.hook
def map_body(context, body):
    return as_integers(body)


def as_integers(value):
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: as_integers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [as_integers(item) for item in value]
    return value
