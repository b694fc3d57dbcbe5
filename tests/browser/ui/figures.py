"""Data of the pages beside the calls: tasks, approvals, rejected tokens, actions and figures of the fleet."""

from typing import Any, Final

__all__ = ["FLEET", "FORK", "PAGES", "TASKS"]

Data = dict[str, Any]

TASKS: Final[Data] = {
    "tasks": [
        {
            **{"call": "t1", "tool": "book", "state": "asking", "created": "3m ago", "changed": "1m ago"},
            **{"next": "in 4m", "approvals": ["managers: pending"], "actions": ["cancel", "answer"]},
        },
        {
            **{"call": "t2", "tool": "pay", "state": "failed", "created": "9m ago", "changed": "8m ago"},
            **{"next": "-", "approvals": [], "actions": ["retry"]},
        },
    ],
    "states": [["asking", 1], ["failed", 1]],
    "chosen": [],
    "more": False,
    "counted": 1000,
    "error": "",
}
APPROVALS: Final[Data] = {
    "approvals": [
        {
            **{"call": "t1", "tool": "book", "name": "budget", "by": "managers", "state": "pending"},
            **{
                "opened": "10:15",
                "until": "11:15",
                "decided": "",
                "who": "",
                "message": "200 euros",
                "actions": ["remind"],
            },
        },
        {
            **{"call": "t3", "tool": "book", "name": "budget", "by": "managers", "state": "approved"},
            **{"opened": "9:15", "until": "10:15", "decided": "9:20", "who": "bea", "message": "", "actions": []},
        },
    ],
    "error": "",
}
REJECTED: Final[Data] = {
    "rejected": [
        {
            **{"at": "10:15", "reason": "expired", "tool": "book", "instance": "ash", "call": "t1", "known": True},
            "text": "The token was 2 minutes too old.",
        },
        {
            **{"at": "10:14", "reason": "tampered", "tool": "book", "instance": "ash", "call": None, "known": False},
            "text": "The token was changed.",
        },
    ],
    "reasons": [["expired", 1], ["tampered", 1]],
    "chosen": [],
    "next": None,
}
ACTIONS: Final[Data] = {
    "actions": [
        {
            **{"at": "10:15", "by": "ana", "action": "retry", "call": "t2", "tool": "pay", "outcome": "rejected"},
            **{"why": "its body may have run", "known": False},
        },
        {
            **{"at": "10:14", "by": "ana", "action": "cancel", "call": "t1", "tool": None, "outcome": "done"},
            **{"why": "", "known": True},
        },
    ],
    "next": "older",
}
FLEET: Final[Data] = {
    "sample": {"calls": 10000, "since": "9:00", "until": "10:15", "total": 1000000},
    "instances": [
        {
            "name": "ash",
            "calls": 120,
            "build": "b1",
            "builds": 2,
            "last": "3s ago",
            "clock": "at least 2s behind birch",
        },
        {"name": "birch", "calls": 30, "build": "b2", "builds": 1, "last": "9s ago", "clock": ""},
    ],
    "builds": [{"name": "b1", "build": "b1", "calls": 12, "first": "9:00", "last": "10:00"}],
    "keys": [{"name": "k1", "tasks": 3}],
    "counted": 1000,
    "tools": [
        {
            **{"tool": "book", "calls": 120, "per_minute": "2.1", "failed": "1.2%", "declined": "0%"},
            **{"server": ["4ms", "9ms", "40ms"], "waiting": ["3s", "9s", "2 min 5 s"]},
            **{"rounds": [[1, 90], [2, 30]], "again": "12%"},
        }
    ],
    "reasons": [{"reason": "reworded", "calls": 31, "share": "1.2%"}],
    "left": [{"tool": "book", "question": "seat", "declined": 4, "cancelled": 1, "expired": 2, "waiting": 3}],
    "minutes": [["10:13", 12, 1], ["10:14", 0, 0], ["10:15", 6, 0]],
}

PAGES: Final[dict[str, Data]] = {
    "tasks": TASKS,
    "approvals": APPROVALS,
    "rejected": REJECTED,
    "fleet": FLEET,
    "actions": ACTIONS,
}

FORK: Final[dict[str, Any]] = {
    "call": "c1",
    "tool": "order",
    "at": 2,
    "differs": None,
    "not_asked": ["shure"],
    "rounds": [
        {
            "round": 2,
            "questions": [{"key": "seats", "kind": "form", "message": "How many seats?"}],
            "answers": {"seats": {"action": "accept", "data": 5}},
            "own": ["seats"],
            "complaints": {"seats": "Must be at least 1."},
            "recorded": {"seats": {"action": "accept", "data": {"seats": 2**53 + 1}}},
        },
        {
            "round": 3,
            "questions": [{"key": "sure", "kind": "form", "message": "5 seats. Sure?"}],
            "answers": {},
            "own": [],
            "complaints": {},
            "recorded": {},
        },
    ],
    "recorded": {"end": "completed: row A"},
    "fork": {"end": "asks", "step": None, "reason": None, "result": None},
}
