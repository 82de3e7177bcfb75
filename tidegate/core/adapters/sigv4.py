"""Amazon's request signature, version 4, by botocore: the one module that knows it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from tidegate.core.access.secrets import CredentialMissing
from tidegate.core.adapters.extras import require

PACKAGE = "botocore"


class AwsKeys(NamedTuple):
    """What signs."""

    access_key: str
    secret_key: str
    session_token: str | None = None


class AwsSigner:
    """Signs requests to one service of one AWS region."""

    def __init__(self, region: str, service: str, profile: str | None) -> None:
        """Nothing is looked for yet; `profile` is of AWS' own configuration files.

        Raises:
            NotInstalled: botocore is not there.
        """
        require(PACKAGE)
        # With DEBUG it writes down what it signs, a session's token among it.
        logging.getLogger("botocore.auth").setLevel(logging.INFO)
        self._region, self._service, self._profile = region, service, profile
        self._found: Any = None

    def sign(self, method: str, url: str, headers: Mapping[str, str], keys: AwsKeys | None) -> Mapping[str, str]:
        """The headers to send, `headers` among them, for a request without a body.

        Raises:
            CredentialMissing: `keys` are None, and AWS' usual places have none.
        """
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        request = AWSRequest(method=method, url=url, headers=dict(headers))
        SigV4Auth(Credentials(*(keys or self.usual_keys())), self._service, self._region).add_auth(request)
        return dict(request.headers.items())

    def usual_keys(self) -> AwsKeys:
        """Those that AWS' own tools would use; those of a role are got again before they end.

        Raises:
            CredentialMissing: there are none.
        """
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session

        try:
            if self._found is None:
                self._found = Session(profile=self._profile).get_credentials()
            frozen = self._found.get_frozen_credentials() if self._found else None
        except BotoCoreError as error:
            raise CredentialMissing(f"no AWS credentials: {error}", hint="check the profile and its files") from error
        if frozen is None:
            raise CredentialMissing(
                "no AWS credentials were found", hint="name `access_key` and `secret_key`, or give this process a role"
            )
        return AwsKeys(frozen.access_key, frozen.secret_key, frozen.token)
