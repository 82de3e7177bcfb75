"""What can go wrong while a model version is made ready to serve.

VersionMismatch (UsageError)        the spec pins a vLLM that is not the installed one
NotAModel (UsageError)              the folder is no Hugging Face directory with safetensors weights
CannotBeServed (UsageError)         the pinned vLLM cannot serve the version as the spec says
EnvironmentMissing (OutsideError)   the engine environment is not there, or could not be made
NotProven (OutsideError)            what was built is not loaded again, or is another model than the eager one
BrokenImage (UsageError)            an image or its layout is not what it says
DiskFull (OutsideError)             no room left; nothing half-written stays
BadKey (UsageError)                 a key for signatures cannot be read, or is of another kind
BadSignature (UsageError)           signed by another key, or changed since
BadReference (UsageError)           no name of an image in a registry
RegistryRefused (UsageError)        the registry wants other credentials, or will not do what was asked
NotThere (RegistryRefused)          the registry has not what was asked for
RegistryUnavailable (OutsideError)  the registry does not answer, or not as registries do
"""

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
