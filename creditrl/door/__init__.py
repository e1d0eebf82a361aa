"""The one door of every server of this package: who may connect, who may ask, and for how long.

A server is a :class:`~creditrl.door.asgi.Server` (an ASGI application under uvicorn) or a
:class:`~creditrl.door.plain.PlainServer` (the standard library's, for what is read without an
extra). Both listen by :func:`~creditrl.door.listen.listen`, which gives an interface that others
can reach to none without a token, and both show every request to a
:class:`~creditrl.door.gate.Gate` before anything else. Nothing else in the package listens;
``docs/security.md`` lists the servers.
"""
