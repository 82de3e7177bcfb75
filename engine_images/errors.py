"""What can go wrong while a model version is made ready to serve."""

from __future__ import annotations

from tidegate.core.errors import OutsideError, UsageError


class VersionMismatch(UsageError):
    """The spec pins a vLLM that is not the installed one."""


class NotAModel(UsageError):
    """The folder is no Hugging Face directory with safetensors weights."""


class CannotBeServed(UsageError):
    """The pinned vLLM cannot serve the version as the spec says; one line for each reason."""


class EnvironmentMissing(OutsideError):
    """The engine environment is not there, or could not be made."""


class BrokenImage(UsageError):
    """An image or its layout is not what it says."""


class DiskFull(OutsideError):
    """No room left; nothing half-written stays."""


class BadKey(UsageError):
    """A key for signatures cannot be read, or is of another kind."""


class BadSignature(UsageError):
    """Signed by another key, or changed since it was signed."""


class BadReference(UsageError):
    """No name of an image in a registry."""


class RegistryRefused(UsageError):
    """The registry wants other credentials, or will not do what was asked."""


class NotThere(RegistryRefused):
    """The registry has not what was asked for."""


class RegistryUnavailable(OutsideError):
    """The registry does not answer, or not as registries do."""


class NotProven(OutsideError):
    """What was built is not loaded again, or is another model than the eager one."""
