"""Why a question is put: for the trace, never for the wire."""

from enum import StrEnum

__all__ = ["Reason"]


class Reason(StrEnum):
    """Why a question is put."""

    NEW = "new"
    """It has not been put in this call before."""
    MISSING = "missing"
    """It was put, and no answer came."""
    INVALID = "invalid"
    """Its answer did not fit its form."""
    REWORDED = "reworded"
    """Its message differs from the one that was answered."""
    SCHEMA_CHANGED = "schema changed"
    """Its form differs from the one that was answered; its message may, too."""
    KEY_GONE = "key gone"
    """The key that its answer was pinned with has left the ring, so nobody can tell whether its wording changed."""
    RENAMED = "renamed away"
    """An answer to this very question is known under a name that nothing asks by any more."""
    VOLATILE = "volatile"
    """Its wording changes from leg to leg of one build, so that answers to it are lost."""
    OTHER_BUILD = "other build"
    """Another build of the application began the call, and asked, or accepted, something else."""
    UNFINISHED = "unfinished"
    """The user agreed to go to a page, and is not done there."""
    REVISED = "revised"
    """The user changed an earlier answer, on which it may depend."""
