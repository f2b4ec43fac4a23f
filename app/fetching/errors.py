"""What can go wrong between a hub and the model folder. Qt-free.

FetchError
├── HubUnreachableError       no connection: offline, a wrong address, a proxy that refuses
│   └── HubOfflineModeError   the environment forbids the network (HF_HUB_OFFLINE)
├── ConnectionLostError       the connection broke, or nothing came for too long
├── HubTroubleError           the server failed (5xx)
├── RateLimitedError          too many requests (429)
├── TokenRefusedError         the token is wrong or may not do this (401, 403)
├── GatedError                the model's terms must be accepted first (401, 403)
├── NotFoundError             no such model, revision or file (404)
├── HubAnswerError            an answer that makes no sense
├── UnsafeNameError           a name that must not become a file here
├── DiskFullError             the disk has not the room
├── FileWriteError            the file system refuses
├── WrongSizeError            the file has another size than the hub says
├── ChecksumError             the file has another checksum than the hub says
└── FetchInUseError           another process fetches the same file
"""

from __future__ import annotations

from app.app_error import AppError


class FetchError(AppError):
    code = "fetch"


class HubUnreachableError(FetchError):
    code = "hub_unreachable"
    action = "Check the network. Models on this computer work without it."


class HubOfflineModeError(HubUnreachableError):
    code = "hub_offline_mode"
    action = "Start Quire without HF_HUB_OFFLINE to use the hub."


class ConnectionLostError(FetchError):
    code = "hub_connection_lost"
    action = "Try again; what was fetched is kept."


class HubTroubleError(FetchError):
    """``seconds``: how long the hub asks to wait; 0 if it does not say."""

    code = "hub_trouble"
    action = "Try again later; what was fetched is kept."

    def __init__(self, message: str, seconds: float = 0.0, **numbers: int | float | str) -> None:
        super().__init__(message, **numbers)
        self.seconds = seconds


class RateLimitedError(FetchError):
    """``seconds``: how long the hub asks to wait."""

    code = "hub_rate_limited"
    action = "Wait. An access token raises the limit."

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message, seconds=round(seconds))
        self.seconds = seconds


class TokenRefusedError(FetchError):
    code = "hub_token_refused"
    action = "Enter an access token that may read this model."


class GatedError(FetchError):
    code = "hub_gated"
    action = "Accept the terms on the model's page, and enter an access token."


class NotFoundError(FetchError):
    code = "hub_not_found"
    action = "Search again: it was renamed, removed, or is private."


class HubAnswerError(FetchError):
    code = "hub_answer"
    action = "Check the address of the hub in the settings."


class UnsafeNameError(FetchError):
    code = "fetch_unsafe_name"
    action = "Choose another repository."


class DiskFullError(FetchError):
    code = "fetch_disk_full"
    action = "Free some disk space, then resume. What was fetched is kept."


class FileWriteError(FetchError):
    code = "fetch_write"
    action = "Check the model folder and its permissions, then resume."


class WrongSizeError(FetchError):
    code = "fetch_wrong_size"
    action = "Try again. If it stays, the file on the hub is at fault."


class ChecksumError(FetchError):
    code = "fetch_checksum"
    action = "Nothing of it was kept. Try again."


class FetchInUseError(FetchError):
    code = "fetch_in_use"
    action = "Wait until the other window is done."
