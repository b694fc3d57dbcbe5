"""What a test suite needs for tools that ask: scripted users who speak through a real client, on either era."""

from roundtrip.clients.legs import Era, Leg
from roundtrip.testing.comparing import assert_same_on_both_eras
from roundtrip.testing.conversations import Conversation, Question
from roundtrip.testing.deliveries import Breach, Delivery, Inapplicable
from roundtrip.testing.hosting import served
from roundtrip.testing.network import Network, Route
from roundtrip.testing.scripts import ACCEPT, CANCEL, DECLINE, Answers, Reply
from roundtrip.testing.users import Unanswered, Unused, User

__all__ = [
    "ACCEPT",
    "CANCEL",
    "DECLINE",
    "Answers",
    "Breach",
    "Conversation",
    "Delivery",
    "Era",
    "Inapplicable",
    "Leg",
    "Network",
    "Question",
    "Reply",
    "Route",
    "Unanswered",
    "Unused",
    "User",
    "assert_same_on_both_eras",
    "served",
]
