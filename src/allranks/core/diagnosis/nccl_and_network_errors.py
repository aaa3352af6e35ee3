"""Exceptions about connections between ranks and to other servers.

Order matters: narrower patterns come first.
"""

from __future__ import annotations

from allranks.core.diagnosis.causes import Cause
from allranks.core.diagnosis.error_pattern import ErrorPattern

_ANY = r"\w+: (?:[^\n]{0,300})"

NETWORK = (
    ErrorPattern(
        Cause.PORT_TAKEN,
        r"DistNetworkError: [^\n]*EADDRINUSE|(?:OSError|PermissionError): \[Errno 98\]|"
        r"RuntimeError: [^\n]*failed to listen[^\n]*ddress already in use",
    ),
    ErrorPattern(
        Cause.RENDEZVOUS_TIMEOUT,
        r"DistStoreError: (?:Timed out after \d+ seconds waiting for clients|wait timeout after)|"
        r"(?:DistNetworkError|DistStoreError|TimeoutError): The client socket has (?:timed out|"
        r"failed to connect)|Rendezvous(?:Timeout|Connection)Error\b|"
        r"(?:XlaRuntimeError|JaxRuntimeError): DEADLINE_EXCEEDED: [^\n]*(?:RegisterTask|connect)",
    ),
    ErrorPattern(
        Cause.COLLECTIVE_MISMATCH,
        r"(?:RuntimeError|DistBackendError): [^\n]*(?:Detected mismatch between collectives|"
        r"op\.preamble\.length <= op\.nbytes)|"
        r"RuntimeError: (?:\[(?:Rank )?\d+\]: )?(?:Params may be mismatched|params?\[\d+\] in "
        r"this process|DDP expects same model across all ranks)|"
        r"RuntimeError: [^\n]*verify params? (?:across|shape)",
    ),
    ErrorPattern(
        Cause.COLLECTIVE_TIMEOUT,
        r"(?:RuntimeError|DistBackendError|DistNetworkError): [^\n]*(?:Timed out waiting \d+ms for "
        r"(?:recv|send)|Watchdog caught collective operation timeout|Application timeout caused)",
    ),
    ErrorPattern(
        Cause.PEER_LOST,
        r"(?:RuntimeError|DistBackendError|DistNetworkError|DistStoreError|ConnectionError): "
        r"[^\n]*(?:Connection closed by peer|Connection reset by peer \[|Connection reset by peer"
        r"$|Broken pipe \[|Connection was likely closed|remote process exited|ncclRemoteError|"
        r"Failed to recv, got 0 bytes|failed to recv, got 0 bytes|closed the connection)|"
        r"DistNetworkError: [^\n]*(?:Broken pipe|Connection reset)|"
        r"DistBackendError: NCCL error(?:[^\n]*\n){1,4}[^\n]*Connection closed by remote peer|"
        r"RuntimeError: [^\n]*gloo[^\n]*(?:Read error|Write error|Connect(?:ion)? (?:error|timeout|"
        r"refused)|writev)",
    ),
    ErrorPattern(
        Cause.NCCL_ERROR,
        r"(?:DistBackendError|RuntimeError): [^\n]*NCCL[^\n]*\n?(?:[^\n]*\n){0,4}[^\n]*"
        r"Duplicate GPU detected",
        "two ranks share one GPU, which NCCL does not allow: request as many GPUs as ranks per "
        "node (--gpus) and call torch.cuda.set_device(LOCAL_RANK)",
    ),
    ErrorPattern(Cause.NCCL_ERROR, r"(?:DistBackendError|RuntimeError): NCCL error"),
    ErrorPattern(
        Cause.NAME_NOT_RESOLVED,
        r"(?!Dist|Runtime)" + _ANY + r"(?:NameResolutionError|Failed to resolve|\[Errno -[235]\] "
        r"(?:Temporary failure|Name or service|No address)|Could not resolve host|"
        r"Temporary failure in name resolution)",
    ),
    ErrorPattern(
        Cause.NETWORK_UNREACHABLE,
        r"(?:\w*ProxyError|\w*ConnectionError|OSError|URLError): [^\n]{0,300}(?:Tunnel connection "
        r"failed|Cannot connect to proxy|Unable to connect to proxy)",
        "the proxy refused the connection or is unreachable: check https_proxy and no_proxy in the "
        "job (--env https_proxy=…)",
    ),
    ErrorPattern(
        Cause.TLS_FAILED,
        r"SSL\w*Error: |(?!Runtime)" + _ANY + r"(?:CERTIFICATE_VERIFY_FAILED|SSLCertVerification"
        r"Error|SSLError\(|WRONG_VERSION_NUMBER)",
    ),
    ErrorPattern(
        Cause.ACCESS_DENIED,
        r"\w*HTTP\w*Error: (?:HTTP Error |Client error ')?40[13]\b|GatedRepoError|"
        r"OSError: You are trying to access a gated repo|"
        r"(?:LocalTokenNotFoundError|AuthenticationError): |"
        r"RepositoryNotFoundError: 401|ClientError: [^\n]*\((?:AccessDenied|InvalidAccessKeyId|"
        r"SignatureDoesNotMatch|ExpiredToken)|NoCredentialsError: Unable to locate credentials",
    ),
    ErrorPattern(
        Cause.RATE_LIMITED,
        r"\w*HTTP\w*Error: (?:HTTP Error |Client error ')?429\b|RateLimitError\b",
    ),
    ErrorPattern(
        Cause.NETWORK_UNREACHABLE,
        r"(?!Dist|Runtime)" + _ANY + r"(?:\[Errno (?:101|113|110)\]|ConnectTimeoutError|"
        r"Network is unreachable|No route to host)|ConnectTimeout: ",
    ),
    ErrorPattern(
        Cause.CONNECTION_REFUSED,
        r"(?!Dist|Runtime)" + _ANY + r"\[Errno 111\]",
    ),
)
