"""Import Jinja2 for the pages, or say what to install."""

try:
    from jinja2 import (
        BaseLoader,
        ChoiceLoader,
        Environment,
        FileSystemLoader,
        PackageLoader,
        PrefixLoader,
        StrictUndefined,
        TemplateNotFound,
        TemplateSyntaxError,
        meta,
        nodes,
    )
except ImportError as missing:
    raise ImportError("question pages need jinja2: pip install 'mcp-roundtrip[pages]'", name="jinja2") from missing

__all__ = [
    "BaseLoader",
    "ChoiceLoader",
    "Environment",
    "FileSystemLoader",
    "PackageLoader",
    "PrefixLoader",
    "StrictUndefined",
    "TemplateNotFound",
    "TemplateSyntaxError",
    "meta",
    "nodes",
]
