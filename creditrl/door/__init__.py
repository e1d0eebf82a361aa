"""Base of every server of this package: which clients may connect and send requests, and limits.

A server is a :class:`~creditrl.door.asgi.Server` (an ASGI application under uvicorn) or a
:class:`~creditrl.door.plain.PlainServer` (the standard library's, which needs no extra). Both
listen through :func:`~creditrl.door.listen.listen`, which refuses an interface that other machines
can reach unless there is a token, and both check every request with a
:class:`~creditrl.door.gate.Gate` before anything else. Nothing else in the package listens;
``docs/security.md`` lists the servers.
"""
