"""What a test suite needs for tools that ask: scripted users who speak through a real client, on either era."""

from roundtrip.testing.conversations import Conversation, Question
from roundtrip.testing.eras import Era
from roundtrip.testing.scripts import ACCEPT, CANCEL, DECLINE, Answers, Reply
from roundtrip.testing.users import Unanswered, Unused, User, assert_same_on_both_eras

__all__ = [
    "ACCEPT",
    "CANCEL",
    "DECLINE",
    "Answers",
    "Conversation",
    "Era",
    "Question",
    "Reply",
    "Unanswered",
    "Unused",
    "User",
    "assert_same_on_both_eras",
]
