"""Serverless platforms: AWS Lambda, and ASGI hosts that send no lifespan, or one lifespan per request."""

from roundtrip.serverless.application import asgi_app
from roundtrip.serverless.lambda_handler import lambda_handler

__all__ = ["asgi_app", "lambda_handler"]
