"""Serverless platforms: AWS Lambda, and hosts that send an ASGI application no lifespan, or one for each request."""

from roundtrip.serverless.application import asgi_app
from roundtrip.serverless.lambda_handler import lambda_handler

__all__ = ["asgi_app", "lambda_handler"]
