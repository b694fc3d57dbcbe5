"""Uses of the testing kit that a type checker rejects."""

from roundtrip import Server
from roundtrip.testing import User

server = Server("cinema")

User(server, answers={7: "back"})  # error: reportArgumentType
User(server, answers={"seat": object()})  # error: reportArgumentType
User(server, era="retry")  # error: reportArgumentType
User(server, missing_capabilities={"roots"})  # error: reportArgumentType
User(server, {}, 7)  # error: reportCallIssue
